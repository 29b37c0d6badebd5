"""Distribution functions of latencies as charts: pure functions of samples from the tables of a Result."""
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from simulator.results.figures.chart import Chart, Line, Mark, Panel, Rule, number, plural, table_of
from simulator.results.request_passes import Sample

MARKED = (50, 90, 99)
SHOWN = 1.5             # times the 99th percentile: as far as the axis goes
SHARES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)


class Measure(NamedTuple):
    """A latency, with its column `key` of summary.json."""

    key: str
    label: str
    what: str           # its definition, as a phrase


MEASURES = (Measure("ttft_ms", "TTFT", "from arrival to the first token"),
            Measure("tpot_ms", "TPOT", "time per output token after the first"),
            Measure("itl_ms", "ITL", "gaps between tokens"),
            Measure("e2el_ms", "E2EL", "from arrival to the last token"),
            Measure("queue_ms", "queue", "from the waiting queue to the first scheduling"))


def latency_chart(measure: Measure, samples: Mapping[str, Sample]) -> Chart:
    """Return the distribution function of a latency.

    Parameters
    ----------
    samples : by the name of the run; the first is the run of the report, a second one the run to compare with, by
        the same bound. Runs without samples have no line.
    """
    drawn = {name: sample.quantiles() for name, sample in samples.items() if len(sample)}
    bound_ms = next(iter(samples.values())).bound_ms
    marks, tails, highest = [], [], []
    for style, (name, (values, shares)) in enumerate(drawn.items()):
        at = np.interp(np.array(MARKED) / 100, shares, values)
        marks.append(Line(name if len(drawn) > 1 else "", values, shares * 100, style))
        tails.append(at[-1])
        highest.append(values[-1])
        if not style:
            first = [Mark(value, share, f"p{share} {number(value)} ms")
                     for value, share in zip(at, MARKED, strict=True)]
    end = min(max(highest, default=1.0), SHOWN * max(tails, default=1.0)) * 1.02 or 1.0
    if bound_ms is not None and bound_ms <= SHOWN * end:
        end = max(end, 1.05 * bound_ms)
        marks.append(Rule(bound_ms, f"SLO {number(bound_ms)} ms"))
    marks += first if drawn else []
    columns = ("%", *(f"{name}, ms" for name in drawn))
    percent = np.array(SHARES)
    table = table_of(columns, percent, *(np.interp(percent / 100, shares, values) for values, shares in drawn.values()))
    return Chart(f"{measure.key}_cdf", f"{measure.label}: {measure.what}", _says(samples, drawn, bound_ms, end),
                 f"{measure.label}, ms", (Panel("% at most so long", tuple(marks), (0, 102)),), table, (0, end))


def _says(samples: Mapping[str, Sample], drawn: Mapping, bound_ms: float | None, end: float) -> str:
    """Return the sentence on the distribution of the first run, and of the others."""
    if not drawn:
        return "There are no samples."
    said = []
    for name, (values, shares) in drawn.items():
        p50, p90, p99 = np.interp((0.5, 0.9, 0.99), shares, values)
        said.append((f"{name}: half" if len(samples) > 1 else "Half")
                    + f" take up to {number(p50)} ms, 90 % up to {number(p90)} ms, 99 % up to {number(p99)} ms; the "
                    f"longest of {plural(len(samples[name]), 'sample')} {number(values[-1])} ms"
                    + (", beyond the axis." if values[-1] > end else "."))
        if bound_ms is not None:
            kept = samples[name].num_within / len(samples[name])
            said.append(f"{kept:.2%} keep the SLO of {number(bound_ms)} ms"
                        + (", which lies beyond the axis." if bound_ms > end else "."))
    said += [f"{name} has no samples." for name in samples if name not in drawn]
    return " ".join(said)
