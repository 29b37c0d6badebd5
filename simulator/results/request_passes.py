"""Passes over requests for charts: read in blocks of rows, of which none is kept."""
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from simulator.domain import records
from simulator.results.figures.decimate import between, quantile_ranks
from simulator.results.ranked import Ranked, in_passes
from simulator.results.slo import LEAST_TOKENS, MEASURES

COLUMNS = ("arrival_ns", "enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns", "output_tokens", "status",
           "cause", "measured")       # read from /requests; the last two are optional
MOST_BINS = 1000
_WIDTHS_S = (1, 2, 5, 10, 20, 50, 100, 200, 500)

Columns = Mapping[str, np.ndarray]
Bounds = Mapping[str, float]


class Sample:
    """The distribution of one latency, found in passes over its values.

    num_within : number of values that keep the bound.
    is_done : no further pass is needed.

    Parameters
    ----------
    bound_ms : of [slo]; None: there is none.
    """

    def __init__(self, bound_ms: float | None = None):
        self.bound_ms, self.num_within = bound_ms, 0
        self._ranked = Ranked(lambda count: np.unique(np.concatenate(quantile_ranks(count)[1:])))
        self._is_first = True

    def __len__(self):
        return self._ranked.count

    @property
    def is_done(self) -> bool:
        return self._ranked.is_done

    def take(self, values_ms: np.ndarray) -> None:
        """Process values."""
        if self.is_done:
            return
        self._ranked.take(values_ms)
        if self._is_first and self.bound_ms is not None:
            self.num_within += int(np.count_nonzero(values_ms <= self.bound_ms))

    def end_pass(self) -> None:
        """End a pass over all values."""
        if not self.is_done:
            self._ranked.end_pass()
        self._is_first = False

    def quantiles(self) -> tuple[np.ndarray, np.ndarray]:
        """Return values and shares, as `decimate.quantiles` does; there must be values."""
        shares, low, high = quantile_ranks(len(self))
        return between(self._ranked.at(low), self._ranked.at(high), shares, len(self)), shares


class Requests:
    """Measured requests.

    statuses, causes : counts by `records.STATUS_NAMES` and `records.CAUSE_NAMES`.
    longest_wait_ns : of scheduled requests, in the waiting queue.
    samples : latencies of completed requests, by key.

    Parameters
    ----------
    blocks : `COLUMNS` of the table /requests from its first row to its last, each time that it is called.
    bounds : of latencies, in ms.
    until_ns : completions are counted until then, or longer.
    keys : keys of latencies.
    """

    def __init__(self, blocks: Callable[[], Iterable[Columns]], bounds: Bounds, until_ns: int = 0,
                 keys: Iterable[str] = tuple(MEASURES)):
        self.statuses = np.zeros(len(records.STATUS_NAMES), np.int64)
        self.causes = np.zeros(len(records.CAUSE_NAMES), np.int64)
        self.longest_wait_ns = 0
        self.samples = {key: Sample(bounds.get(key)) for key in keys}
        self.is_done = False
        self._until_ns, self._num_passes = until_ns, 0
        self._edges_s = self._completions = None        # bins of completions, known after the first pass
        in_passes(blocks, self)

    def __len__(self):
        return int(self.statuses.sum())

    def take(self, block: Columns) -> None:
        """Process a block of rows."""
        if "measured" in block and not (counts := block["measured"] == 1).all():
            block = {name: column[counts] for name, column in block.items()}
        is_done = block["status"] == records.COMPLETED
        if self._num_passes == 0:
            self._count(block)
            self._until_ns = max(self._until_ns, int(block["completed_ns"][is_done].max(initial=0)))
        elif self._num_passes == 1:
            self._completions += np.histogram(block["completed_ns"][is_done] / 1e9, self._edges_s)[0]
        due = {key: sample for key, sample in self.samples.items() if not sample.is_done}
        completed = {name: column[is_done] for name, column in block.items()} if due else {}
        for key, sample in due.items():
            sample.take(MEASURES[key](completed)[completed["output_tokens"] >= LEAST_TOKENS.get(key, 0)])

    def end_pass(self) -> None:
        """End a pass over all requests."""
        if self._num_passes == 0:
            self._edges_s = bin_edges_s(self._until_ns / 1e9)
            self._completions = np.zeros(len(self._edges_s) - 1, np.int64)
        self._num_passes += 1
        for sample in self.samples.values():
            sample.end_pass()
        self.is_done = self._num_passes > 1 and all(sample.is_done for sample in self.samples.values())

    def completions(self) -> tuple[np.ndarray, np.ndarray]:
        """Return edges of bins in s, and completed requests per second in each."""
        return self._edges_s, self._completions / (self._edges_s[1] - self._edges_s[0])

    def _count(self, block: Columns) -> None:
        self.statuses += np.bincount(block["status"], minlength=len(self.statuses))
        if "cause" in block:
            self.causes += np.bincount(block["cause"], minlength=len(self.causes))
        began = block["scheduled_ns"] >= 0
        waits_ns = (block["scheduled_ns"] - block["enqueued_ns"])[began]
        self.longest_wait_ns = max(self.longest_wait_ns, int(waits_ns.max(initial=0)))


class Gaps:
    """Gaps between tokens of all requests, from blocks of token times.

    sample : their distribution.

    Parameters
    ----------
    blocks : /token_times/times_ns from its first to its last, each time that it is called.
    offsets : /token_times/offsets.
    """

    def __init__(self, blocks: Callable[[], Iterable[np.ndarray]], offsets: np.ndarray):
        self.sample = Sample()
        self._firsts = offsets[1:-1]            # first tokens of requests: no gap precedes them
        self._num_seen, self._last_ns = 0, np.empty(0, np.int64)
        in_passes(blocks, self)

    @property
    def is_done(self) -> bool:
        return self.sample.is_done

    def take(self, times_ns: np.ndarray) -> None:
        """Process the times of the next tokens."""
        begin, self._num_seen = self._num_seen, self._num_seen + len(times_ns)
        is_gap = np.ones(len(times_ns), bool)
        is_gap[self._firsts[slice(*np.searchsorted(self._firsts, (begin, self._num_seen)))] - begin] = False
        if not len(self._last_ns):
            is_gap[:1] = False
        gaps_ns = np.diff(times_ns, prepend=self._last_ns if len(self._last_ns) else times_ns[:1])
        self.sample.take(gaps_ns[is_gap] / 1e6)
        self._last_ns = times_ns[-1:].copy()

    def end_pass(self) -> None:
        """End a pass over all tokens."""
        self.sample.end_pass()
        self._num_seen, self._last_ns = 0, self._last_ns[:0]


def bin_edges_s(duration_s: float) -> np.ndarray:
    """Return edges of bins, until `duration_s`, that are as wide as `bin_width_s`."""
    width_s = bin_width_s(duration_s)
    return np.arange(0, max(1, int(np.ceil(duration_s / width_s))) + 1) * float(width_s)


def bin_width_s(duration_s: float) -> float:
    """Return the width of bins: 1 s, or more, so that there are at most `MOST_BINS`."""
    scale = 1
    while True:
        for width in _WIDTHS_S:
            if duration_s <= width * scale * MOST_BINS:
                return width * scale
        scale *= 1000
