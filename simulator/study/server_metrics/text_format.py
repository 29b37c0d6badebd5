"""Pages of metrics in Prometheus' text format: a line for each sample."""
import re

SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)"
                    r"(?: (?P<time_ms>\d{12,})| -?\d+)?")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
FLAGS = "_config_info"          # vLLM's flags are labels of the metric vllm:cache_config_info


def samples_of(text: str) -> dict[str, float]:
    """Return the samples of a page in Prometheus' text format.

    Keys are name and labels, as on the page.
    """
    return {key: value for samples in by_time(text).values() for key, value in samples.items()}


def by_time(text: str) -> dict[str | None, dict[str, float]]:
    """Return the samples of a page by the time of their lines.

    Times are texts, in milliseconds; None: lines without one.
    """
    found = {}
    for line in text.splitlines():
        match = SAMPLE.fullmatch(line.strip())
        if match is None or line.startswith("#"):
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        key = match["name"] if match["labels"] is None else f"{match['name']}{{{match['labels']}}}"
        value = value if abs(value) < float("inf") else str(value)              # JSON has no infinity
        found.setdefault(match["time_ms"], {})[key] = value
    return found


def flags_in(metrics: dict[str, float] | str) -> dict[str, str]:
    """Return the flags of a server, where they are labels of its metrics.

    metrics : the samples of a page, or why there are none.
    """
    found = {}
    for key in metrics if isinstance(metrics, dict) else ():
        name, _, labels = key.partition("{")
        if name.endswith(FLAGS):
            found |= dict(LABEL.findall(labels))
    return found
