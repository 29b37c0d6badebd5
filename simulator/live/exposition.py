"""Metrics as text: the exposition format of Prometheus, version 0.0.4."""
from bisect import bisect_left
from collections.abc import Iterable


class Histogram:
    """Counts of values by upper bounds, which are included."""

    def __init__(self, bounds: tuple[float, ...]):
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: dict[str, str]) -> Iterable[str]:
        """Yield the lines of the histogram."""
        total = 0
        for bound, count in zip((*map(number, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            yield f"{name}_bucket{{{labels_text(labels | {'le': bound})}}} {total}"
        yield f"{name}_count{{{labels_text(labels)}}} {total}"
        yield f"{name}_sum{{{labels_text(labels)}}} {number(self.sum)}"


def number(value: float) -> str:
    """Return a number as Prometheus' own client writes it."""
    return repr(float(value))


def labels_text(labels: dict[str, str]) -> str:
    """Return labels, their values escaped."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class Page:
    """A page of metrics in the making."""

    def __init__(self):
        self._lines: list[str] = []

    def family(self, name: str, kind: str, meaning: str,
               samples: Iterable[tuple[dict[str, str], float | Histogram]]) -> None:
        """Add a family.

        kind : gauge, counter or histogram. samples : labels and value of each.
        """
        self._lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
        for labels, value in samples:
            if isinstance(value, Histogram):
                self._lines += value.lines(name, labels)
            else:
                self._lines.append(f"{name}{{{labels_text(labels)}}} {number(value)}" if labels
                                   else f"{name} {number(value)}")

    def text(self) -> str:
        """Return the page."""
        return "\n".join(self._lines) + "\n"
