"""Offered load, served load, and the growth of the backlog."""
from collections.abc import Callable

import numpy as np

from simulator.domain import records
from simulator.domain.run import Run
from simulator.domain.window import Window
from simulator.results.finish import cancelled
from simulator.results.served import is_unserved
from simulator.results.verdicts import GROWING, LEAST_REQUESTS, OVERLOADED, STABLE, TOO_SHORT, UNSERVED

NUM_BATCHES, NUM_KEPT = 20, 18      # batch means; the first two are dropped, for the system starts empty
T_99 = 2.583487                     # quantile 0.99 of Student's t with NUM_KEPT - 2 = 16 degrees of freedom
LEAST_RISE = 0.2                    # of the mean
MOST_UNSERVED = 0.05                # share of the offered requests
TURNED_AWAY = [records.CAUSE_NAMES.index(name) for name in ("admission", "queue_full", "shed", "expired", "recalled")]
BURST_NS = 1_000_000            # requests within this time arrive at once: no client offers a rate by that
LEAST_STAYS = 5                 # times as long as the first requests stay: a shorter run shows no trend of a backlog
_COLUMNS = ("arrival_ns", "first_token_ns", "completed_ns", "output_tokens", "status")
_FOR_EVER_NS = np.iinfo(np.int64).max


def load_of(run: Run, journeys: np.ndarray | None = None, part: Run | None = None) -> dict:
    """Return offered rate, requests in the system and the verdict on them.

    Where a window is measured, only requests that arrived in it count; they find all requests in the system.

    Parameters
    ----------
    part : the measured part of the run, `measured_part`; None: the whole run. journeys : of it, from `journeys_of`.

    Returns
    -------
    dict
        offered_throughput: requests that arrived per second, (n - 1) / (last arrival - first); None where that is no
        rate: fewer than two, or all within `BURST_NS`. verdict: see below. in_system: mean and peak number of requests
        that an arriving request finds in the system, and growth_per_s, the slope of the regression; None without
        requests. served_share: completions over arrivals while requests arrived, without the first tenth; None where
        too few arrived.

    Notes
    -----
    The verdict is

    - "unserved" if nothing was served, or fewer than half of all requests, for another reason than the load: see
      `served`;
    - "overloaded" if the backlog grows and fewer than 95 % of the requests that arrived were completed meanwhile; or
      if more than 5 % of all gave up (timed out) or were refused by the gateway, with any backlog;
    - "growing" if the backlog grows, but throughput nearly keeps up: a load close to 1, or one that rises;
    - `TOO_SHORT` replaces "overloaded" and "growing", where the backlog decides and the run, from the first
      arrival to the last completion, is less than `LEAST_STAYS` times as long as the first tenth of the requests
      stayed, in the mean: until departures match arrivals every system fills, and the run does not show where that
      ends. The first tenth, since a growing backlog makes later requests stay ever longer. Also where fewer than
      `LEAST_REQUESTS` arrived and were admitted, or none is complete;
    - "stable" else.

    The backlog grows if, over 18 batch means in order of arrival (20, the first two dropped), the regressions of both
    the number of requests in the system and TTFT on the number of the batch rise: slopes positive with one-sided
    p < 0.01, fitted rises (slope x 18) above 20 % of the means. Requests that still wait for a first token at the end
    have no TTFT, so that regression ends where the first such request arrived; with fewer than 40 TTFTs the other
    decides alone. Requests that were rejected or dropped, or failed, do not count in the backlog. Requests that all
    arrived at one instant are "stable": a burst has no rate, its backlog only drains.

    Two signals at once are the rule of GuideLLM for over-saturation; batch means and t quantiles are standard: Law,
    "Simulation Modeling and Analysis", section 9.5.
    """
    everyone, part = Came(run), part or run
    came = everyone if run.window is None else everyone.within(run.window)
    span_ns = int(came.arrival_ns[-1] - came.arrival_ns[0]) if len(came.arrival_ns) > 1 else 0
    found, counts, served_share, grows = in_system(everyone, came), None, None, False
    if span_ns > BURST_NS and len(found) >= LEAST_REQUESTS:
        counts = batch_means(found)
        served_share = _served_share(came, everyone)
        grows = rises(counts) and _ttft_rises(came)
    verdict = verdict_of(grows, served_share, _gave_up_share(part, journeys) > MOST_UNSERVED, came.is_short,
                         len(found) >= LEAST_REQUESTS and came.any_completed())
    if not records.has_come(part.workload.requests["status"]).any():
        verdict = TOO_SHORT
    return {
        "offered_throughput": (len(came.arrival_ns) - 1) * 1e9 / span_ns if span_ns > BURST_NS else None,
        "verdict": UNSERVED if is_unserved(part, nothing=verdict == OVERLOADED) else verdict,
        "in_system": {"mean": float(found.mean()) if len(found) else None,
                      "peak": int(found.max()) if len(found) else None,
                      "growth_per_s": None if counts is None else growth_per_s(
                          counts, batch_means(came.of_those_that_stay(came.arrival_ns) / 1e9))},
        "served_share": served_share,
    }


class Came:
    """The requests that arrived, column by column: selecting rows is expensive.

    stays : bool, requests that were admitted and not lost.
    """

    def __init__(self, run: Run):
        requests, status = run.workload.requests, run.workload.requests["status"]
        came = records.has_come(status)
        came = slice(None) if came.all() else came
        if run.workload.script is not None:         # the table is ordered by plays
            rows = np.flatnonzero(status[came] >= 0) if isinstance(came, slice) else np.flatnonzero(came)
            came = rows[np.argsort(requests["arrival_ns"][rows], kind="stable")]
        for name in _COLUMNS:
            setattr(self, name, requests[name][came])
        self.deadline_ns = run.workload.demands["deadline_ns"][came]
        self.stays = ~np.isin(self.status, (records.REJECTED, records.DROPPED, records.FAILED))

    def within(self, window: Window) -> "Came":
        """Return the requests that arrived in a window."""
        rows = slice(*np.searchsorted(self.arrival_ns, (window.begin_ns, window.end_ns + 1)).tolist())
        part = object.__new__(Came)
        for name, column in vars(self).items():
            setattr(part, name, column[rows])
        return part

    def of_those_that_stay(self, column: np.ndarray) -> np.ndarray:
        """Return a column of the requests that were admitted and not lost."""
        return column if self.stays.all() else column[self.stays]

    def any_completed(self) -> bool:
        """Return whether any request is complete."""
        return bool((self.status == records.COMPLETED).any())

    def is_short(self) -> bool:
        """Return whether the run is short compared with the stays of the first requests."""
        stays_ns, done = self.completed_ns - self.arrival_ns, self.status == records.COMPLETED
        early = done[:-(-len(done) * (NUM_BATCHES - NUM_KEPT) // NUM_BATCHES)]
        chosen = np.flatnonzero(early if early.any() else done)
        length_ns = self.completed_ns.max(initial=0) - self.arrival_ns[0]
        return bool(len(chosen)) and length_ns < LEAST_STAYS * float(stays_ns[chosen].mean())


def in_system(came: Came, looking: Came | None = None) -> np.ndarray:
    """Return the number of requests that each admitted one found on arrival, int64.

    A request leaves with its last token or at its deadline; a refused or lost one was never there; an unfinished
    one stays.

    looking : the requests to return numbers for; None: all.
    """
    left_ns = np.where(came.status == records.COMPLETED, came.completed_ns, _FOR_EVER_NS)
    gave_up = came.status == records.TIMED_OUT
    left_ns[gave_up] = came.deadline_ns[gave_up]
    arrival_ns = came.of_those_that_stay(came.arrival_ns)
    left_ns = came.of_those_that_stay(left_ns)
    left_ns.sort()
    found = np.arange(len(arrival_ns))
    if looking is not None and looking is not came:
        arrival_ns = looking.of_those_that_stay(looking.arrival_ns)
        before = np.searchsorted(came.arrival_ns, arrival_ns[0]) if len(arrival_ns) else 0
        first = int(came.stays[:before].sum())
        found = found[first:first + len(arrival_ns)]
    gone = np.searchsorted(left_ns, arrival_ns, side="right")
    del left_ns                                 # here memory is at its peak
    found -= gone
    return np.maximum(found, 0, out=found)      # a departure at the instant of arrival does not count


def batch_means(values: np.ndarray) -> np.ndarray:
    """Return the means of the last `NUM_KEPT` of `NUM_BATCHES` equal stretches."""
    size = len(values) // NUM_BATCHES
    return values[len(values) - NUM_KEPT * size:].reshape(NUM_KEPT, size).mean(axis=1)


def rises(means: np.ndarray) -> bool:
    """Return whether batch means rise significantly and by over a fifth of their mean."""
    number = np.arange(len(means)) - (len(means) - 1) / 2
    spread = float((number**2).sum())
    slope = float((number * means).sum()) / spread
    rest = means - means.mean() - slope * number
    error = (float((rest**2).sum()) / (len(means) - 2) / spread) ** 0.5
    return slope > T_99 * error and slope * len(means) > LEAST_RISE * float(means.mean())


def _ttft_rises(came: Came) -> bool:
    has_token = (came.first_token_ns >= 0) & ((came.output_tokens > 0) | (came.status != records.COMPLETED))
    waits = np.flatnonzero(~has_token & (came.status < records.COMPLETED))
    has_token[waits[0] if len(waits) else len(has_token):] = False
    if has_token.sum() < LEAST_REQUESTS:
        return True
    return rises(batch_means((came.first_token_ns - came.arrival_ns)[has_token] / 1e6))


def _served_share(came: Came, everyone: Came) -> float:
    """Return completions over arrivals, from the first arrival of the third batch to the last arrival."""
    arrival_ns = came.of_those_that_stay(came.arrival_ns)
    ended_ns = everyone.of_those_that_stay(everyone.completed_ns)
    num_arrivals = NUM_KEPT * (len(arrival_ns) // NUM_BATCHES)
    since_ns, until_ns = arrival_ns[-num_arrivals], arrival_ns[-1]
    return int(((ended_ns > since_ns) & (ended_ns <= until_ns)).sum()) / num_arrivals


def _gave_up_share(run: Run, journeys: np.ndarray | None) -> float:
    """Return the share of the arrived requests that gave up, or were refused by the gateway."""
    status = run.workload.requests["status"]
    unserved = (status == records.TIMED_OUT) & ~cancelled(run.workload)
    if journeys is not None:
        unserved |= (status > records.COMPLETED) & np.isin(journeys["cause"], TURNED_AWAY)
    came = int(records.has_come(status).sum())
    return int(unserved.sum()) / came if came else 0.0


def growth_per_s(means: np.ndarray, times_s: np.ndarray) -> float | None:
    """Return by how many requests a second the backlog grows.

    means : of the backlog, by batch. times_s : mean arrival times of the batches.
    """
    times_s = times_s - times_s.mean()
    spread = float((times_s**2).sum())
    return float((times_s * means).sum()) / spread if spread else None


def verdict_of(grows: bool, served_share: float | None, has_given_up: bool, is_short: Callable[[], bool],
               is_enough: bool) -> str:
    """Return the verdict on a load, see `load_of`, where some requests were served.

    grows : the backlog does. served_share : of the arrivals; None: not asked for, if nothing grows. has_given_up : too
    many clients have, or the gateway. is_short : called only where the backlog decides. is_enough : of requests.
    """
    falls_behind = (grows and served_share < 1 - MOST_UNSERVED) or has_given_up
    verdict = OVERLOADED if falls_behind else GROWING if grows else STABLE
    if (grows and not has_given_up and is_short()) or (verdict == STABLE and not is_enough):
        return TOO_SHORT
    return verdict
