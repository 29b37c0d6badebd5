"""What the servers did over time, as charts: pure functions of the tables of a Result."""
import numpy as np

from simulator.domain import records
from simulator.results.figures.chart import Band, Chart, Grid, Line, Panel, number, plural, table_of
from simulator.results.figures.decimate import NUM_COLUMNS, decimated
from simulator.results.lanes import Lanes

MOST_BINS = 1000
NUM_SLICES = 120            # of the whole time, for means
MOST_GRID_ROWS = 64
_WIDTHS_S = (1, 2, 5, 10, 20, 50, 100, 200, 500)


def bin_width_s(duration_s: float) -> float:
    """Return the width of bins: 1 s, or more, so that there are at most `MOST_BINS`."""
    scale = 1
    while True:
        for width in _WIDTHS_S:
            if duration_s <= width * scale * MOST_BINS:
                return width * scale
        scale *= 1000


def timeline(lanes: Lanes, requests: np.ndarray | None, num_columns: int = NUM_COLUMNS) -> Chart:
    """Return running, waiting, KV use and throughput over time.

    Parameters
    ----------
    requests : those whose completions are counted; None: their table was not written.
    num_columns : of pixels, with at most two points each.
    """
    times_s = lanes.event_times_s
    blocks = int(lanes.replicas["num_blocks"].sum())
    totals = {name: lanes.total(name) for name in ("running", "waiting", "used_blocks")}
    used = totals["used_blocks"] * (100 / blocks if blocks else 0)
    shown = [decimated(times_s, values, num_columns) for values in (totals["running"], totals["waiting"], used)]
    panels = [Panel(label, (Line("", x, y, steps=True),))
              for label, (x, y) in zip(("running", "waiting", "KV, %"), shown, strict=True)]
    peaks = [(int(totals[name].max()), times_s[int(totals[name].argmax())]) if len(lanes) else (0, 0.0)
             for name in ("running", "waiting")]
    waits = f"{peaks[1][0]:,} wait (at {number(peaks[1][1])} s)" if peaks[1][0] else _brief_waits(requests)
    says = (f"At most {peaks[0][0]:,} run at once (at {number(peaks[0][1])} s) and {waits}; at most "
            f"{number(float(used.max(initial=0)))} % of the KV blocks are in use. Between its "
            "iterations a replica counts as empty.")
    if requests is not None:
        edges_s, rate = completions(requests, lanes.end_of_all_ns)
        panels.append(Panel("requests/s", (Line("", edges_s, np.append(rate, rate[-1:]), steps=True),)))
        says += f" Completions are counted in bins of {number(edges_s[1] - edges_s[0])} s."
    edges_ns = slices(lanes)
    at_s = edges_ns[:-1][edges_ns[:-1] / 1e9 >= times_s[0]] / 1e9 if len(lanes) else np.empty(0)
    rows = np.searchsorted(times_s, at_s, "right") - 1
    table = table_of(("time, s", "running", "waiting", "KV, %"), at_s,
                     *(values[rows] for values in (totals["running"], totals["waiting"], used)))
    return Chart("timeline", "Running, waiting, KV use and throughput", says, "time, s", tuple(panels),
                 table, (0, lanes.end_of_all_ns / 1e9 or 1))


def _brief_waits(requests: np.ndarray | None) -> str:
    """Return how long requests wait where each is in the next batch that is formed."""
    if requests is None:
        return "no batch leaves a request waiting"
    began = requests[requests["scheduled_ns"] >= 0]
    longest_ms = float((began["scheduled_ns"] - began["enqueued_ns"]).max(initial=0)) / 1e6
    if not longest_ms:
        return "no request waits"
    return f"no batch leaves a request waiting: the longest wait for the next one is {number(longest_ms)} ms"


def completions(requests: np.ndarray, until_ns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return edges of bins in s, and completed requests per second in each."""
    done_s = requests["completed_ns"][requests["status"] == records.COMPLETED] / 1e9
    last_s = max(float(done_s.max(initial=0)), until_ns / 1e9)
    width_s = bin_width_s(last_s)
    edges_s = np.arange(0, max(1, int(np.ceil(last_s / width_s))) + 1) * float(width_s)
    return edges_s, np.histogram(done_s, edges_s)[0] / width_s


def slices(lanes: Lanes) -> np.ndarray:
    """Return the edges of `NUM_SLICES` equal slices of the time, int64 ns."""
    return np.linspace(0, max(lanes.end_of_all_ns, NUM_SLICES), NUM_SLICES + 1).astype(np.int64)


def utilisation(lanes: Lanes) -> Chart:
    """Return the busy share over time, as Vidur's `replica_*_busy_time_percent`."""
    edges_ns = slices(lanes)
    share = lanes.means(edges_ns) * 100
    middle_s = (edges_ns[:-1] + edges_ns[1:]) / 2e9
    mean, low, high = share.mean(axis=0), share.min(axis=0), share.max(axis=0)
    many = len(share) > 1
    band = (Band("least to most busy replica", middle_s, low, high, 0),) if many else ()
    says = (f"Replicas compute {number(float(mean.mean()))} % of the time on average"
            + (f"; the least busy one {number(float(share.mean(axis=1).min()))} %, the most busy one "
               f"{number(float(share.mean(axis=1).max()))} %." if many else "."))
    columns = ("time, s", "mean, %", "least, %", "most, %")
    table = table_of(columns, middle_s, mean, low, high)
    return Chart("utilisation", "Utilisation: busy share of the time", says, "time, s",
                 (Panel("busy, %", (*band, Line("mean" if many else "", middle_s, mean, 0)), (0, 102)),), table,
                 (0, edges_ns[-1] / 1e9))


def heat_maps(lanes: Lanes) -> Chart:
    """Return batch, KV use and queue of each replica over time.

    Of many replicas, means of groups of neighbours.
    """
    edges_ns = slices(lanes)
    used = lanes.column("used_blocks") / np.maximum(lanes.capacity, 1) * 100
    values = {"batch": lanes.means(edges_ns, lanes.column("sequences")), "KV, %": lanes.means(edges_ns, used),
              "queue": lanes.means(edges_ns, lanes.column("waiting"))}
    count = len(lanes.replicas)
    size = -(-count // MOST_GRID_ROWS) if count else 1
    first = np.arange(0, count, size)
    span_s = (0, edges_ns[-1] / 1e9)
    panels = tuple(Panel("replica" if size == 1 else f"replica / {size}",
                         (Grid(label, _grouped(each, first), span_s),)) for label, each in values.items())
    load = values["batch"].mean(axis=1)
    says = "Lighter is more; a row is " + ("a replica." if size == 1 else f"the mean of {size} neighbours.")
    if count > 1:
        says += (f" Batches are largest on replica {int(load.argmax())} ({number(float(load.max()))} on average) and "
                 f"smallest on replica {int(load.argmin())} ({number(float(load.min()))}).")
    names = [str(row) for row in range(count)]
    table = table_of(("replica", "mean batch", "mean KV, %", "mean queue"), names,
                     *(each.mean(axis=1) for each in values.values()))
    return Chart("replicas", f"{plural(count, 'replica')} over time: batch, KV use and queue", says, "time, s", panels,
                 table, span_s)


def _grouped(values: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the means of groups of rows that begin at `first`."""
    sizes = np.diff(np.append(first, len(values)))
    return np.add.reduceat(values, first, axis=0) / sizes[:, None] if len(first) else np.zeros((1, values.shape[1]))
