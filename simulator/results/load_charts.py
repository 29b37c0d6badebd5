"""The load of servers over time, as charts: pure functions of passes over the tables of a Result."""
import numpy as np

from simulator.results.figures.chart import Band, Chart, Grid, Line, Panel, number, plural, table_of
from simulator.results.lanes import Lanes
from simulator.results.request_passes import Requests

MOST_GRID_ROWS = 64
HEATS = (("batch", "sequences"), ("KV, %", "used_share"), ("queue", "waiting"))


def timeline(lanes: Lanes, requests: Requests | None) -> Chart:
    """Return running, waiting, KV use and throughput over time.

    Parameters
    ----------
    requests : for the count of completions; None: their table was not written.
    """
    found, end_s = lanes.timeline, lanes.span.end_ns / 1e9
    blocks = int(lanes.replicas["num_blocks"].sum())
    percent = 100 / blocks if blocks else 0
    running, waiting, used = (values * factor for values, factor in zip(found.values, (1, 1, percent), strict=True))
    panels = [Panel(label, (Line("", found.times_s, y, steps=True),))
              for label, y in (("running", running), ("waiting", waiting), ("KV, %", used))]
    peak, peak_s = found.peaks, found.peak_times_s
    waits = f"{peak[1]:,} wait (at {number(peak_s[1])} s)" if peak[1] else _brief_waits(requests)
    says = (f"At most {peak[0]:,} run at once (at {number(peak_s[0])} s) and {waits}; at most "
            f"{number(float(peak[2] * percent))} % of the KV blocks are in use. Between its "
            "iterations a replica counts as empty.")
    if requests is not None:
        edges_s, rate = requests.completions()
        panels.append(Panel("requests/s", (Line("", edges_s, np.append(rate, rate[-1:]), steps=True),)))
        says += f" Completions are counted in bins of {number(edges_s[1] - edges_s[0])} s."
    table = table_of(("time, s", "running", "waiting", "KV, %"), found.at_s, found.looks[:, 0], found.looks[:, 1],
                     found.looks[:, 2] * percent)
    return Chart("timeline", "Running, waiting, KV use and throughput", says, "time, s", tuple(panels),
                 table, (0, end_s or 1))


def _brief_waits(requests: Requests | None) -> str:
    """Return a sentence on waits, if every request is in the next batch that is formed."""
    if requests is None:
        return "no batch leaves a request waiting"
    longest_ms = requests.longest_wait_ns / 1e6
    if not longest_ms:
        return "no request waits"
    return f"no batch leaves a request waiting: the longest wait for the next one is {number(longest_ms)} ms"


def utilisation(lanes: Lanes) -> Chart:
    """Return the busy share over time, as Vidur's `replica_*_busy_time_percent`."""
    edges_ns = lanes.slices_ns
    share = lanes.means["busy"] * 100
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

    With many replicas: means of groups of neighbours.
    """
    edges_ns = lanes.slices_ns
    values = {label: lanes.means[name] for label, name in HEATS}
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
