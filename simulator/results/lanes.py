"""Iterations lane by lane, by replica and time: read in blocks of rows, of which none is kept."""
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from simulator.domain import records
from simulator.results.batches import Batches, tokens_of
from simulator.results.figures.decimate import NUM_COLUMNS
from simulator.results.lane_sums import Means, Totals
from simulator.results.ranked import in_passes, one_pass

COLUMNS = ("replica", "stage", "start_ns", "duration_ns", "begin_ns", "sequences", "prefill_tokens", "decode_tokens",
           "waiting", "running", "used_blocks")         # read from /iterations
BATCH_COLUMNS = ("replica", "stage", "duration_ns", "prefill_tokens", "decode_tokens")      # that medians need
NUM_SLICES = 120            # of the whole time, for means
TOTALS = ("running", "waiting", "used_blocks")
MEANS = ("busy", "sequences", "used_share", "waiting")
FULL = 0.95                 # of the KV blocks
LATEST_NS = 1 << 62         # of an instant; a later one is none

Columns = Mapping[str, np.ndarray]
Blocks = Callable[[tuple[str, ...]], Iterable[Columns]]


class Span:
    """The first pass: number and times of iterations, and times at limits.

    num_rows, num_used : iterations; replicas that had any.
    first_ns, begin_ns, end_ns : schedule time of the first, begin of the first, end of the last; 0 without iterations.
    busy_ns : sum of their durations.
    held_ns : of the busy time, the part with waiting requests (`waiting`) and a reached limit (`kv`, `seqs`, `budget`).

    Parameters
    ----------
    num_blocks, max_seqs, budget : of each replica; the last two 0: not known.
    """

    def __init__(self, num_blocks: np.ndarray, max_seqs: np.ndarray, budget: np.ndarray):
        self._num_blocks, self._max_seqs, self._budget = num_blocks, max_seqs, budget
        self._is_used = np.zeros(len(num_blocks), bool)
        self.num_rows = self.busy_ns = self.first_ns = self.begin_ns = self.end_ns = 0
        self.held_ns = dict.fromkeys(("kv", "seqs", "budget", "waiting"), 0)
        self.is_done = False

    def take(self, rows: Columns) -> None:
        """Process a block of rows."""
        begin_ns, duration_ns, replica = rows["begin_ns"], rows["duration_ns"], rows["replica"]
        if not len(replica):
            return
        if not 0 <= replica.min() <= replica.max() < len(self._num_blocks):
            raise ValueError("/iterations: a replica that /replicas does not have")
        if int(begin_ns.max()) + int(duration_ns.max()) > LATEST_NS or rows["start_ns"].min() < 0:
            raise ValueError("/iterations: no run lasts so long")
        if not self.num_rows:
            self.first_ns, self.begin_ns = int(rows["start_ns"][0]), int(begin_ns[0])
        self.num_rows += len(replica)
        self.begin_ns = min(self.begin_ns, int(begin_ns.min()))
        self.end_ns = max(self.end_ns, int((begin_ns + duration_ns).max()))
        self.busy_ns += int(duration_ns.sum())
        self._is_used[replica] = True
        waits = rows["waiting"] > 0
        max_seqs, budget = self._max_seqs[replica], self._budget[replica]
        reached = {"kv": rows["used_blocks"] >= FULL * self._num_blocks[replica],
                   "seqs": (max_seqs > 0) & (rows["running"] >= max_seqs),
                   "budget": (budget > 0) & (tokens_of(rows) >= budget), "waiting": waits}
        for name, each in reached.items():
            self.held_ns[name] += int(duration_ns[waits & each].sum())

    def end_pass(self) -> None:
        """End the only pass."""
        self.num_used = int(np.count_nonzero(self._is_used))
        self.is_done = True


class Timeline(NamedTuple):
    """Sums over replicas, at each event or at extremes.

    times_s, values : of lines, (points,) each: all events, or of many the extremes of each column of pixels. Values are
        in the order of `TOTALS`.
    peaks, peak_times_s : of each value.
    at_s, looks : some instants, and the values at them: (instants, 3).
    """

    times_s: np.ndarray
    values: tuple[np.ndarray, ...]
    peaks: list[int]
    peak_times_s: list[float]
    at_s: np.ndarray
    looks: np.ndarray


class _TotalsLooker:
    """Sums values over replicas, event by event."""

    def __init__(self, span: Span, slices_ns: np.ndarray, num_columns: int, num_replicas: int):
        at_s, first_s = slices_ns[:-1] / 1e9, span.first_ns / 1e9
        self._at_s = at_s[at_s >= first_s] if span.num_rows else np.empty(0)
        edges_s = np.linspace(first_s, max(span.end_ns, span.first_ns) / 1e9, num_columns + 1)[:-1]
        self._most = 2 * num_columns
        self._totals = Totals(edges_s, self._at_s, self._most, num_replicas, len(TOTALS))
        self.is_done = False

    def take(self, rows: Columns) -> None:
        values = np.stack([rows[name] for name in TOTALS], axis=1).astype(np.int32, copy=False)
        self._totals.take(rows["replica"], rows["start_ns"], rows["begin_ns"], rows["duration_ns"], values)
        if not self._totals.is_ordered:
            raise ValueError("/iterations: not in order of start_ns")

    def end_pass(self) -> None:
        self._totals.end()
        self.is_done = True

    def timeline(self) -> Timeline:
        """Return the timeline of the passes."""
        found, count = self._totals, self._totals.num_events
        if count <= self._most:
            times_s, values = found.raw_s[:count], tuple(found.raw[:count].T)
        else:
            filled = ~np.isnan(found.first_s)
            times_s = np.repeat(found.first_s[filled], 2)
            both = np.stack((found.lows[filled], found.highs[filled]), axis=1)      # (columns, 2, values)
            values = tuple(both.reshape(-1, len(TOTALS)).T)
        return Timeline(times_s, values, found.peaks, found.peak_times_s, self._at_s, found.looks)


class _MeansLooker:
    """Averages values of replicas over slices of the time."""

    def __init__(self, slices_ns: np.ndarray, num_blocks: np.ndarray):
        self._num_blocks = np.maximum(num_blocks, 1)
        self._means = Means(slices_ns, len(num_blocks), len(MEANS))
        self.is_done = False

    def take(self, rows: Columns) -> None:
        replica = rows["replica"]
        share = rows["used_blocks"] / self._num_blocks[replica] * 100
        values = np.stack((np.ones(len(replica)), rows["sequences"], share, rows["waiting"]), axis=1)
        self._means.take(replica, rows["begin_ns"], rows["duration_ns"], values)

    def end_pass(self) -> None:
        self.is_done = True

    def means(self) -> dict[str, np.ndarray]:
        """Return (replicas, slices) by name."""
        return dict(zip(MEANS, self._means.means(), strict=True))


class Lanes:
    """Iterations of the first pipeline stage, summed up.

    The table is read three times, or more, in blocks; memory grows with the number of replicas alone.

    span : number and times of iterations, and limits.
    slices_ns : edges of `NUM_SLICES` equal slices of the time, int64.
    timeline : sums over replicas.
    means : (replicas, slices) by the names of `MEANS`; shares of KV in percent.
    batches : composition and durations of batches; None, and no `means`: not requested.

    Parameters
    ----------
    blocks : called with names of `COLUMNS`, returns these columns of /iterations in blocks, first to last row.
    replicas : the table /replicas.
    limits : max_num_seqs and max_num_batched_tokens of each replica; None: they are not known.
    num_columns : of pixels, with at most two points of the timeline each.
    is_brief : compute only the timeline.

    Raises
    ------
    ValueError
        The iterations are impossible: no run writes such rows.
    """

    def __init__(self, blocks: Blocks, replicas: np.ndarray, limits: tuple[np.ndarray, np.ndarray] | None = None,
                 num_columns: int = NUM_COLUMNS, is_brief: bool = False):
        self.replicas = replicas
        self._blocks = blocks
        none = np.zeros(len(replicas), np.int64)
        self.span = Span(replicas["num_blocks"], *(limits or (none, none)))
        self.batches = None if is_brief else Batches()
        more = [self.batches] * (not is_brief)
        one_pass(lambda: self._first_stage(COLUMNS), [self.span, *more])
        self.slices_ns = np.linspace(0, max(self.span.end_ns, NUM_SLICES), NUM_SLICES + 1).astype(np.int64)
        totals = _TotalsLooker(self.span, self.slices_ns, num_columns, len(replicas))
        means = None if is_brief else _MeansLooker(self.slices_ns, replicas["num_blocks"])
        one_pass(lambda: self._first_stage(COLUMNS), [totals, *[means] * (not is_brief), *more])
        in_passes(lambda: self._first_stage(BATCH_COLUMNS), *more)
        self.timeline = totals.timeline()
        self.means = {} if means is None else means.means()

    def __len__(self):
        return self.span.num_rows

    def _first_stage(self, names: tuple[str, ...]) -> Iterable[Columns]:
        for block in self._blocks(names):
            chosen = slice(None) if not block["stage"].any() else block["stage"] == 0
            yield {name: np.ascontiguousarray(block[name][chosen], records.ITERATION[name]) for name in names}
