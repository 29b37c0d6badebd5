"""The first difference of two runs of equal requests, and the share of their rows that differs.

Iterations are compared in their order at each replica (of data-parallel ranks each by itself), requests by row.
"""
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from simulator.results.result import Result

COLUMNS = ("start_ns", "begin_ns", "duration_ns", "sequences", "prefill_tokens", "decode_tokens", "context_tokens",
           "waiting", "running", "used_blocks", "preempted", "padded_tokens", "encoder_tokens")
TIMES = ("enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns")
# Further columns of a request -> the time from which each is known.
COUNTS = {"replica": "enqueued_ns", "rank": "enqueued_ns", "cached_tokens": "scheduled_ns",
          "output_tokens": "completed_ns", "preemptions": "completed_ns", "status": "completed_ns"}
NEVER = np.iinfo(np.int64).max


class Schedule(NamedTuple):
    """A run, as far as it is compared.

    batches : (replica, rank) -> rows of /iterations, of the first stage, in order. requests : columns of /requests.
    """

    batches: Mapping[tuple[int, int], np.ndarray]
    requests: Mapping[str, np.ndarray]

    @property
    def num_iterations(self) -> int:
        """Iterations of all replicas."""
        return sum(map(len, self.batches.values()))


class Difference(NamedTuple):
    """The first difference of a replica, or of the requests.

    The earliest one sorts first.

    time_ns : when the earlier of both runs is known to differ. of_request : about a request, not an iteration.
    replica, rank : -1 for requests. row : number of the iteration there, from 0, or row of the request.
    """

    time_ns: int
    of_request: bool
    replica: int
    rank: int
    row: int


class Extent(NamedTuple):
    """How much of two runs differs.

    firsts : of each replica that differs, the earliest first. request : first one that differs, None: none.
    iterations, requests : how many differ, of num_iterations and all requests; an iteration that only one run has
        counts, too.
    """

    firsts: list[Difference]
    request: Difference | None
    iterations: int
    requests: int
    num_iterations: int

    @property
    def first(self) -> Difference | None:
        """The first difference of all; None: the runs are equal."""
        return min([*self.firsts[:1], *([] if self.request is None else [self.request])], default=None)


def schedule_of(result: Result) -> Schedule:
    """Return the part of a run's results that is compared."""
    rows = result.iterations[result.iterations["stage"] == 0]
    order = np.lexsort((np.arange(len(rows)), rows["rank"], rows["replica"]))
    rows = rows[order]
    keys = np.stack([rows["replica"], rows["rank"]], axis=1)
    begins = np.flatnonzero(np.append(True, np.any(keys[1:] != keys[:-1], axis=1))) if len(rows) else []
    ends = [*begins[1:], len(rows)]
    batches = {(int(keys[begin, 0]), int(keys[begin, 1])): rows[begin:end] for begin, end in zip(begins, ends)}
    names = [name for name in ("arrival_ns", *TIMES, *COUNTS) if name in result.requests.dtype.names]   # not all: rank
    return Schedule(batches, {name: result.requests[name] for name in names})


def compared(old: Schedule, new: Schedule, until_ns: int = NEVER) -> Extent:
    """Return how much of two runs differs.

    until_ns : only rows known by then are compared, and only requests that both runs have.
    """
    firsts, count, total = [], 0, 0
    for replica, rank in sorted(old.batches.keys() | new.batches.keys()):
        before, after = (_until(each.batches.get((replica, rank)), until_ns) for each in (old, new))
        differs = _differing_rows(before, after)
        total += len(differs)
        if differs.any():
            row = int(np.argmax(differs))
            time_ns = min(int(rows["start_ns"][row]) for rows in (before, after) if row < len(rows))
            firsts.append(Difference(time_ns, False, replica, rank, row))
            count += int(differs.sum())
    times_ns = _request_times(old, new, until_ns)
    differing = times_ns < NEVER
    request = None
    if differing.any():
        row = int(np.argmin(times_ns))
        request = Difference(int(times_ns[row]), True, -1, -1, row)
    return Extent(sorted(firsts), request, count, int(differing.sum()), total)


def batch_of(schedule: Schedule, difference: Difference) -> dict[str, int] | None:
    """Return the columns of a differing iteration; None: it is not in the run."""
    rows = schedule.batches.get((difference.replica, difference.rank), ())
    return {name: int(rows[name][difference.row]) for name in COLUMNS} if difference.row < len(rows) else None


def request_of(schedule: Schedule, row: int) -> dict[str, Any]:
    """Return the columns of a request."""
    return {name: int(values[row]) for name, values in schedule.requests.items()}


def _until(rows: np.ndarray | None, until_ns: int) -> np.ndarray:
    if rows is None:
        return np.empty(0, [(name, np.int64) for name in COLUMNS])
    return rows[:np.searchsorted(rows["start_ns"], until_ns, side="right")]


def _differing_rows(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return which rows differ, bool (n,), n that of the longer run."""
    count = min(len(before), len(after))
    differs = np.ones(max(len(before), len(after)), bool)
    differs[:count] = np.any([before[name][:count] != after[name][:count] for name in COLUMNS], axis=0)
    return differs


def _request_times(old: Schedule, new: Schedule, until_ns: int) -> np.ndarray:
    """Return when each request is first known to differ, int64 (n,); NEVER: it does not."""
    before, after = old.requests, new.requests
    count = min(len(before["arrival_ns"]), len(after["arrival_ns"]))
    found = np.full(count, NEVER)
    for name in before.keys() - {"arrival_ns"}:
        known = COUNTS.get(name, name)
        times_ns = [_known(each[known][:count]) for each in (before, after)]
        values = times_ns if name in TIMES else [each[name][:count] for each in (before, after)]
        since_ns = np.minimum(*times_ns)
        since_ns = np.where(since_ns == NEVER, NEVER - 1, since_ns)     # of requests that never get there
        differs = (values[0] != values[1]) & (since_ns <= until_ns)
        found = np.where(differs, np.minimum(found, since_ns), found)
    return found


def _known(times_ns: np.ndarray) -> np.ndarray:
    return np.where(times_ns < 0, NEVER, times_ns)
