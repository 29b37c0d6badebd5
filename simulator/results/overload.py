"""What was offered, what was served, and whether the backlog grew."""
import numpy as np

from simulator.domain import records
from simulator.domain.run import Run

NUM_BATCHES, NUM_KEPT = 20, 18      # batch means; the first two are dropped, for the system starts empty
LEAST_REQUESTS = 2 * NUM_BATCHES    # fewer tell nothing about growth
T_99 = 2.583487                     # quantile 0.99 of Student's t with NUM_KEPT - 2 = 16 degrees of freedom
LEAST_RISE = 0.2                    # of the mean
MOST_UNSERVED = 0.05                # of what was offered
TURNED_AWAY = [records.CAUSE_NAMES.index(name) for name in ("admission", "queue_full", "shed", "expired", "recalled")]
_FOR_EVER_NS = np.iinfo(np.int64).max


def load_of(run: Run, journeys: np.ndarray | None = None) -> dict:
    """Return offered rate, requests in the system and the verdict on them.

    Returns
    -------
    dict
        offered_throughput: requests that came per second, (n - 1) / (last arrival - first); None where that is no rate:
        fewer than two, or all at one instant. verdict: see below. in_system: mean and peak number of requests that an
        arriving request finds in the system, and growth_per_s, the slope of the regression; None without requests.
        served_share: completions over arrivals while requests came, the first tenth of them left out; None where too
        few came.

    Notes
    -----
    The verdict is

    - "overloaded" if the backlog grows and fewer than 95 % of the requests that came were completed while they came; or
      if more than 5 % of all gave up (timed out) or were turned away by the gateway, whatever the backlog does;
    - "growing" if the backlog grows, but what is served nearly keeps up: a load close to 1, or one that rises;
    - "stable" else.

    The backlog grows if, over 18 batch means in order of arrival (20, the first two dropped), the regressions of both
    the number of requests in the system and TTFT on the number of the batch rise: slopes positive with one-sided
    p < 0.01, fitted rises (slope x 18) above 20 % of the means. Requests that still wait for a first token at the end
    have no TTFT, so that regression ends where the first of them came; with fewer than 40 TTFTs the other decides
    alone. Requests that were rejected or dropped, or failed, count nowhere in the backlog. Fewer than 40 requests are
    "stable", and so are those that all came at one instant: a burst has no rate, its backlog only drains.

    Two signals at once are the rule of GuideLLM for over-saturation; batch means and t quantiles are standard: Law,
    "Simulation Modeling and Analysis", section 9.5.
    """
    came = Came(run)
    span_ns = int(came.arrival_ns[-1] - came.arrival_ns[0]) if len(came.arrival_ns) > 1 else 0
    found, counts, served_share, grows = in_system(came), None, None, False
    if span_ns and len(found) >= LEAST_REQUESTS:
        counts = batch_means(found)
        served_share = _served_share(came)
        grows = rises(counts) and _ttft_rises(came)
    is_short = (grows and served_share < 1 - MOST_UNSERVED) or _unserved_share(run, journeys) > MOST_UNSERVED
    return {
        "offered_throughput": (len(came.arrival_ns) - 1) * 1e9 / span_ns if span_ns else None,
        "verdict": "overloaded" if is_short else "growing" if grows else "stable",
        "in_system": {"mean": float(found.mean()) if len(found) else None,
                      "peak": int(found.max()) if len(found) else None,
                      "growth_per_s": None if counts is None else _growth_per_s(counts, came)},
        "served_share": served_share,
    }


class Came:
    """The requests that came, column by column: rows are dear to choose from.

    stays : bool, those that were let in and not lost.
    """

    def __init__(self, run: Run):
        requests, status = run.workload.requests, run.workload.requests["status"]
        came = records.has_come(status)
        came = slice(None) if came.all() else came
        if run.workload.script is not None:         # the table has them play by play
            rows = np.flatnonzero(status[came] >= 0) if isinstance(came, slice) else np.flatnonzero(came)
            came = rows[np.argsort(requests["arrival_ns"][rows], kind="stable")]
        self.arrival_ns, self.first_token_ns = requests["arrival_ns"][came], requests["first_token_ns"][came]
        self.completed_ns, self.status = requests["completed_ns"][came], status[came]
        self.deadline_ns = run.workload.demands["deadline_ns"][came]
        self.stays = ~np.isin(self.status, (records.REJECTED, records.DROPPED, records.FAILED))

    def of_those_that_stay(self, column: np.ndarray) -> np.ndarray:
        """Return a column of the requests that were let in and not lost."""
        return column if self.stays.all() else column[self.stays]


def in_system(came: Came) -> np.ndarray:
    """Return how many requests each that was let in found when it came, int64.

    A request leaves with its last token or at its deadline; one that was refused or lost was never there; one that is
    not over stays.
    """
    left_ns = np.where(came.status == records.COMPLETED, came.completed_ns, _FOR_EVER_NS)
    gave_up = came.status == records.TIMED_OUT
    left_ns[gave_up] = came.deadline_ns[gave_up]
    arrival_ns = came.of_those_that_stay(came.arrival_ns)
    left_ns = came.of_those_that_stay(left_ns)
    left_ns.sort()
    gone = np.searchsorted(left_ns, arrival_ns, side="right")
    del left_ns                                 # here memory is at its peak
    found = np.arange(len(arrival_ns))
    found -= gone
    return np.maximum(found, 0, out=found)      # who leaves when it comes was not there


def batch_means(values: np.ndarray) -> np.ndarray:
    """Return the means of the last `NUM_KEPT` of `NUM_BATCHES` equal stretches."""
    size = len(values) // NUM_BATCHES
    return values[len(values) - NUM_KEPT * size:].reshape(NUM_KEPT, size).mean(axis=1)


def rises(means: np.ndarray) -> bool:
    """Say whether batch means rise significantly and by over a fifth of their mean."""
    number = np.arange(len(means)) - (len(means) - 1) / 2
    spread = float((number**2).sum())
    slope = float((number * means).sum()) / spread
    rest = means - means.mean() - slope * number
    error = (float((rest**2).sum()) / (len(means) - 2) / spread) ** 0.5
    return slope > T_99 * error and slope * len(means) > LEAST_RISE * float(means.mean())


def _ttft_rises(came: Came) -> bool:
    has_token = came.first_token_ns >= 0
    waits = np.flatnonzero(~has_token & (came.status < records.COMPLETED))
    has_token[waits[0] if len(waits) else len(has_token):] = False
    if has_token.sum() < LEAST_REQUESTS:
        return True
    return rises(batch_means((came.first_token_ns - came.arrival_ns)[has_token] / 1e6))


def _served_share(came: Came) -> float:
    """Return completions over arrivals, from the first arrival of the third batch to the last arrival."""
    arrival_ns, ended_ns = map(came.of_those_that_stay, (came.arrival_ns, came.completed_ns))
    num_arrivals = NUM_KEPT * (len(arrival_ns) // NUM_BATCHES)
    since_ns, until_ns = arrival_ns[-num_arrivals], arrival_ns[-1]
    return int(((ended_ns > since_ns) & (ended_ns <= until_ns)).sum()) / num_arrivals


def _unserved_share(run: Run, journeys: np.ndarray | None) -> float:
    """Return the share of the requests that came which gave up, or were turned away by the gateway."""
    status = run.workload.requests["status"]
    unserved = status == records.TIMED_OUT
    if journeys is not None:
        unserved |= (status > records.COMPLETED) & np.isin(journeys["cause"], TURNED_AWAY)
    came = int(records.has_come(status).sum())
    return int(unserved.sum()) / came if came else 0.0


def _growth_per_s(means: np.ndarray, came: Came) -> float | None:
    """Return by how many requests a second the backlog grows, from its batch means."""
    times_s = batch_means(came.of_those_that_stay(came.arrival_ns) / 1e9)
    times_s = times_s - times_s.mean()
    spread = float((times_s**2).sum())
    return float((times_s * means).sum()) / spread if spread else None
