"""Iterations, batches and outcomes as charts: pure functions of the tables of a Result."""
import numpy as np

from simulator.domain import records
from simulator.results.figures.chart import Bars, Chart, Columns, Panel, Points, number, plural, table_of
from simulator.results.figures.decimate import scattered
from simulator.results.lanes import Lanes

NUM_COLUMNS = 250           # of a cloud of points
NUM_BINS = 50
NUM_SIZES = 25
MOST_IN_ONE = 0.8           # of all iterations, in one bin: with more, the others are seen on a logarithmic scale alone


def durations(lanes: Lanes) -> Chart:
    """Return how long iterations took against what was in their batch."""
    order = lanes.by_batch_tokens           # the cloud and the table need it: once, for 2.8 million 20 ms
    tokens, took_ms = lanes.batch_tokens[order], lanes.duration_ns[order] / 1e6
    is_decode = lanes.column("prefill_tokens")[order] == 0
    kinds = (("of", "decodes alone", is_decode), ("with", "prompts", ~is_decode))
    marks, said = [], []
    for style, (of, label, chosen) in enumerate(kinds):
        if chosen.any():
            x, y = scattered(tokens[chosen], took_ms[chosen], NUM_COLUMNS)
            marks.append(Points(label if of == "of" else f"{of} {label}", x, y, style))
            said.append(f"{plural(int(chosen.sum()), 'iteration')} {of} {label}: "
                        f"{number(float(np.median(took_ms[chosen])))} ms (median)")
    says = ("; ".join(said) + ". " if said else "There are no iterations. ") + (
        "Of each pixel column the quickest and the slowest are shown.")
    columns = ("tokens", "iterations", "median, ms", "longest, ms")
    table = table_of(columns, *zip(*_by_size(tokens, took_ms), strict=True))
    return Chart("iterations", "Duration of iterations against tokens of the batch", says, "tokens of the batch",
                 (Panel("duration, ms", tuple(marks)),), table)


def _by_size(tokens: np.ndarray, took_ms: np.ndarray) -> list[tuple[str, float, float, float]]:
    """Return number, median and longest duration of iterations by size of batch.

    tokens : ascending.
    """
    edges = np.unique(np.geomspace(1, max(2, int(tokens.max(initial=1)) + 1), NUM_SIZES).round().astype(np.int64))
    ends = np.searchsorted(tokens, edges, "left")
    parts = [(edges[row - 1], edges[row], took_ms[ends[row - 1]:ends[row]]) for row in range(1, len(edges))]
    return [(f"{low:,} to {high - 1:,}" if high - low > 1 else f"{low:,}", float(len(part)), float(np.median(part)),
             float(part.max())) for low, high, part in parts if len(part)]


def batch_histograms(lanes: Lanes) -> tuple[Chart, ...]:
    """Return histograms of Vidur's and SimAI's batch_size and batch_num_tokens."""
    return (_histogram("batch_size", "Requests per batch", "requests", lanes.column("sequences")),
            _histogram("batch_tokens", "Tokens per batch", "tokens", lanes.batch_tokens))


def _histogram(name: str, title: str, unit: str, values: np.ndarray) -> Chart:
    highest = int(values.max(initial=0))
    width = -(-(highest + 1) // NUM_BINS)
    edges = np.arange(0, highest + width + 1, width)[:highest // width + 2]
    counts = np.bincount(values // width, minlength=len(edges) - 1)
    says = "There are no iterations."
    if len(values):
        low, middle, high = np.percentile(values, (10, 50, 90))
        says = (f"Half of {len(values):,} iterations have up to {number(middle)} {unit}; 80 % have {number(low)} to "
                f"{number(high)}; the most is {highest:,}.")
    is_log = bool(len(values)) and counts.max() > MOST_IN_ONE * len(values)
    says += " The scale is logarithmic." if is_log else ""
    labels = [f"{low:,}" if width == 1 else f"{low:,} to {low + width - 1:,}" for low in edges[:-1].tolist()]
    panel = Panel("iterations", (Columns("", edges, counts, 2),), is_log=is_log)
    return Chart(name, title, says, f"{unit} per batch", (panel,), table_of((unit, "iterations"), labels, counts))


def outcomes(requests: np.ndarray) -> Chart:
    """Return how many requests ended in which way."""
    counts = np.bincount(requests["status"], minlength=len(records.STATUS_NAMES))
    named = {name.replace("_", " "): int(count)
             for name, count in zip(records.STATUS_NAMES, counts.tolist(), strict=True) if count}
    if "cause" in requests.dtype.names:
        by_cause = np.bincount(requests["cause"], minlength=len(records.CAUSE_NAMES)).tolist()
        named |= {f"cause: {name.replace('_', ' ')}": int(count)
                  for name, count in zip(records.CAUSE_NAMES, by_cause, strict=True) if name and count}
    done = int(counts[records.COMPLETED])
    says = (f"{done:,} of {len(requests):,} requests completed." if len(requests) else "There are no requests.")
    names, values = tuple(named), tuple(map(float, named.values()))
    return Chart("outcomes", "What became of the requests", says, "requests", (Panel("", (Bars(names, values),)),),
                 table_of(("outcome", "requests"), names, values))
