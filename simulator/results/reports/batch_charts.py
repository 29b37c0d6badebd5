"""Iterations, batches and outcomes as charts: pure functions of passes over the tables."""
from simulator.domain import records
from simulator.results.batches import KINDS, Histogram
from simulator.results.figures.chart import Bars, Chart, Columns, Panel, Points, number, plural, table_of
from simulator.results.lanes import Lanes
from simulator.results.request_passes import Requests

MOST_IN_ONE = 0.8           # share of one bin: above it a logarithmic scale shows the others


def durations(lanes: Lanes) -> Chart:
    """Return the durations of iterations against the composition of their batch."""
    found = lanes.batches.kinds()
    marks, said = [], []
    for style, name in enumerate(KINDS):
        if name in found:
            kind, link = found[name], "with" if style else "of"
            marks.append(Points(f"with {name}" if style else name, kind.x, kind.y, style))
            said.append(f"{plural(kind.count, 'iteration')} {link} {name}: {number(kind.median_ms)} ms (median)")
    says = ("; ".join(said) + ". " if said else "There are no iterations. ") + (
        "Of each pixel column the quickest and the slowest are shown.")
    sizes = [(f"{size.low:,} to {size.high - 1:,}" if size.high - size.low > 1 else f"{size.low:,}", float(size.count),
              size.median_ms, size.longest_ms) for size in lanes.batches.sizes()]
    columns = ("tokens", "iterations", "median, ms", "longest, ms")
    return Chart("iterations", "Duration of iterations against tokens of the batch", says, "tokens of the batch",
                 (Panel("duration, ms", tuple(marks)),), table_of(columns, *zip(*sizes, strict=True)))


def batch_histograms(lanes: Lanes) -> tuple[Chart, ...]:
    """Return histograms of Vidur's and SimAI's batch_size and batch_num_tokens."""
    sizes, tokens = lanes.batches.histogram("sequences"), lanes.batches.histogram("tokens")
    return (_histogram("batch_size", "Requests per batch", "requests", len(lanes), sizes),
            _histogram("batch_tokens", "Tokens per batch", "tokens", len(lanes), tokens))


def _histogram(name: str, title: str, unit: str, num_rows: int, found: Histogram) -> Chart:
    says = "There are no iterations."
    if found.spread:
        low, middle, high = found.spread
        says = (f"Half of {num_rows:,} iterations have up to {number(middle)} {unit}; 80 % have {number(low)} to "
                f"{number(high)}; the most is {found.highest:,}.")
    is_log = num_rows > 0 and bool(found.counts.max() > MOST_IN_ONE * num_rows)
    says += " The scale is logarithmic." if is_log else ""
    labels = [f"{low:,}" if found.width == 1 else f"{low:,} to {low + found.width - 1:,}"
              for low in found.edges[:-1].tolist()]
    panel = Panel("iterations", (Columns("", found.edges, found.counts, 2),), is_log=is_log)
    return Chart(name, title, says, f"{unit} per batch", (panel,), table_of((unit, "iterations"), labels, found.counts))


def outcomes(requests: Requests) -> Chart:
    """Return the number of requests by outcome."""
    named = {name.replace("_", " "): count
             for name, count in zip(records.STATUS_NAMES, requests.statuses.tolist(), strict=True) if count}
    named |= {f"cause: {name.replace('_', ' ')}": count
              for name, count in zip(records.CAUSE_NAMES, requests.causes.tolist(), strict=True) if name and count}
    count, done = len(requests), int(requests.statuses[records.COMPLETED])
    says = f"{done:,} of {count:,} requests completed." if count else "There are no requests."
    names, values = tuple(named), tuple(map(float, named.values()))
    return Chart("outcomes", "What became of the requests", says, "requests", (Panel("", (Bars(names, values),)),),
                 table_of(("outcome", "requests"), names, values))
