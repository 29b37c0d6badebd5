"""Offered and served load, and queues of replicas, of requests that are given chunk by chunk, in order of arrival."""
import numpy as np

from simulator.domain import records
from simulator.results.overload import (
    BURST_NS,
    LEAST_STAYS,
    NUM_BATCHES,
    NUM_KEPT,
    growth_per_s,
    rises,
    verdict_of,
)
from simulator.results.stretches import Stretches
from simulator.results.verdicts import LEAST_REQUESTS

_FOR_EVER_NS = np.iinfo(np.int64).max


class LoadSums:
    """The sums behind the numbers of `overload.load_of`.

    For requests without deadlines, and without a gateway that refuses them.
    Batch means are exact up to `stretches.MOST_STRETCHES` requests, then those of stretches that are taken to be even.
    """

    def __init__(self):
        self._first_ns = self._last_ns = self._last_gone = self._gone = self._peak = self._sum = 0
        self._came = Stretches(2)           # complete; time from arrival to completion, of complete ones
        self._admitted = Stretches(3)       # found in the system; arrival; number complete by then
        self._ttft = Stretches(1)
        self._pending_ns = np.empty(0, np.int64)        # completions after the last arrival
        self._last_completed_ns = 0
        self._waits = False                 # a request that still waits for a first token was found

    def take(self, requests: np.ndarray) -> None:
        """Take the next requests, none of which is PENDING: `records.REQUEST`."""
        if not len(requests):
            return
        arrival_ns, is_complete = requests["arrival_ns"], requests["status"] == records.COMPLETED
        if not self._came.count:
            self._first_ns = int(arrival_ns[0])
        self._last_ns = int(arrival_ns[-1])
        completed_ns = requests["completed_ns"][is_complete]
        self._last_completed_ns = max(self._last_completed_ns, int(completed_ns.max(initial=0)))
        self._came.add(is_complete, np.where(is_complete, requests["completed_ns"] - arrival_ns, 0))
        self._take_admitted(requests, completed_ns)
        self._take_ttft(requests, is_complete)

    def _take_admitted(self, requests: np.ndarray, completed_ns: np.ndarray) -> None:
        lost = np.isin(requests["status"], (records.REJECTED, records.DROPPED, records.FAILED))
        arrival_ns = requests["arrival_ns"][~lost]
        ends_ns = np.concatenate([self._pending_ns, completed_ns])
        ends_ns.sort()
        gone = self._gone + np.searchsorted(ends_ns, arrival_ns, side="right")
        found = np.maximum(self._admitted.count + np.arange(len(arrival_ns)) - gone, 0)
        self._admitted.add(found, arrival_ns, gone)
        self._peak, self._sum = max(self._peak, int(found.max(initial=0))), self._sum + int(found.sum())
        self._last_gone = int(gone[-1]) if len(gone) else self._last_gone
        num_gone = int(np.searchsorted(ends_ns, self._last_ns, side="right"))
        self._gone, self._pending_ns = self._gone + num_gone, ends_ns[num_gone:]

    def _take_ttft(self, requests: np.ndarray, is_complete: np.ndarray) -> None:
        if self._waits:
            return
        has_token = (requests["first_token_ns"] >= 0) & ((requests["output_tokens"] > 0) | ~is_complete)
        waits = np.flatnonzero(~has_token & (requests["status"] < records.COMPLETED))
        if len(waits):
            self._waits, has_token[waits[0]:] = True, False
        self._ttft.add((requests["first_token_ns"] - requests["arrival_ns"])[has_token] / 1e6)

    def summary(self) -> dict:
        """Return the entries of `overload.load_of`, if some requests were served."""
        span_ns, count = self._last_ns - self._first_ns, self._admitted.count
        served_share, growth, grows = None, None, False
        if span_ns > BURST_NS and count >= LEAST_REQUESTS:
            means, times_ns, _ = batch_means(self._admitted).T
            served_share, growth = self._served_share(), growth_per_s(means, times_ns / 1e9)
            grows = rises(means) and self._ttft_rises()
        is_enough = count >= LEAST_REQUESTS and self._last_completed_ns > 0
        return {
            "offered_throughput": (self._came.count - 1) * 1e9 / span_ns if span_ns > BURST_NS else None,
            "verdict": verdict_of(grows, served_share, False, self._is_short, is_enough),
            "in_system": {"mean": self._sum / count if count else None, "peak": self._peak if count else None,
                          "growth_per_s": growth},
            "served_share": served_share}

    def _served_share(self) -> float:
        num_arrivals = NUM_KEPT * (self._admitted.count // NUM_BATCHES)
        since = self._admitted.count - num_arrivals
        gone = float(self._admitted.between(np.array([since, since + 1]))[0, 2])
        return (self._last_gone - gone) / num_arrivals

    def _ttft_rises(self) -> bool:
        return self._ttft.count < LEAST_REQUESTS or rises(batch_means(self._ttft)[:, 0])

    def _is_short(self) -> bool:
        early = -(-self._came.count * (NUM_BATCHES - NUM_KEPT) // NUM_BATCHES)
        (first, first_ns), (others, others_ns) = self._came.between(np.array([0, early, self._came.count]))
        stay_ns = first_ns / first if first > 0 else others_ns / others if others > 0 else 0.0
        return stay_ns > 0 and self._last_completed_ns - self._first_ns < LEAST_STAYS * stay_ns


def batch_means(values: Stretches) -> np.ndarray:
    """Return the means of the last `NUM_KEPT` of `NUM_BATCHES` equal batches.

    float64 (NUM_KEPT, columns).
    """
    size = values.count // NUM_BATCHES
    return values.between(values.count - size * np.arange(NUM_KEPT, -1, -1)) / size


class QueueSums:
    """Waiting times and lengths of the waiting queues of replicas."""

    def __init__(self, num_replicas: int):
        self._total_ns, self._peak, self._waiting = (np.zeros(num_replicas, np.int64) for _ in range(3))
        self._left, self._entered = ((np.empty(0, np.int64), np.empty(0, np.int64)) for _ in range(2))  # not counted
        self._stays = [np.empty((0, 2), np.int64)]      # entered, replica, of requests that wait at the end

    def take(self, requests: np.ndarray) -> None:
        """Take the next requests, none of which is PENDING: `records.REQUEST`."""
        if not len(requests):
            return
        until_ns = int(requests["arrival_ns"][-1])
        requests = requests[(requests["replica"] >= 0) & (requests["enqueued_ns"] >= 0)]
        waits = (requests["scheduled_ns"] < 0) & (requests["status"] == records.WAITING)
        if waits.any():
            self._stays.append(np.column_stack([requests[name][waits] for name in ("enqueued_ns", "replica")]))
        entered_ns, left_ns, replica = (requests[name].astype(np.int64) for name in (
            "enqueued_ns", "scheduled_ns", "replica"))
        self._add(*(each[left_ns >= entered_ns] for each in (entered_ns, left_ns, replica)))
        if len(self._stays) == 1:               # else the lengths are known at the end alone
            self._count(until_ns)

    def of_all(self, clock_ns: int) -> list[tuple[int, int]]:
        """Return the sum of waiting times in ns, and the longest queue, by replica.

        After the last request; clock_ns : end of the run.
        """
        entered_ns, replica = np.concatenate(self._stays).T
        self._add(entered_ns, np.full(len(entered_ns), clock_ns), replica)
        self._count(_FOR_EVER_NS)
        return list(zip(self._total_ns.tolist(), self._peak.tolist(), strict=True))

    def _add(self, entered_ns: np.ndarray, left_ns: np.ndarray, replica: np.ndarray) -> None:
        np.add.at(self._total_ns, replica, left_ns - entered_ns)
        self._left, self._entered = (
            tuple(map(np.concatenate, zip(events, new, strict=True)))
            for events, new in ((self._left, (left_ns, replica)), (self._entered, (entered_ns, replica))))

    def _count(self, until_ns: int) -> None:
        """Count the events up to an instant; nothing enters at it, or before, any more."""
        (left_ns, left), self._left = _divided(self._left, until_ns)
        (entered_ns, entered), self._entered = _divided(self._entered, until_ns)
        replica = np.concatenate([left, entered])
        if not len(replica):
            return
        order = np.argsort(np.concatenate([left_ns, entered_ns]), kind="stable")        # at an instant some leave first
        small = np.uint16 if len(self._peak) < 1 << 16 else np.int64                    # short keys sort in linear time
        order = order[np.argsort(replica[order].astype(small), kind="stable")]
        step, replica = np.where(order < len(left), -1, 1), replica[order]
        begins = np.flatnonzero(np.append(True, replica[1:] != replica[:-1]))
        own, sums = replica[begins], np.cumsum(step)
        before = sums[begins] - step[begins] - self._waiting[own]
        self._peak[own] = np.maximum(self._peak[own], np.maximum.reduceat(sums, begins) - before)
        self._waiting[own] = sums[np.append(begins[1:] - 1, len(sums) - 1)] - before


def _divided(events: tuple[np.ndarray, np.ndarray], until_ns: int) -> tuple:
    """Return the events, times and replicas, up to an instant, and the others."""
    is_due = events[0] <= until_ns
    return tuple(each[is_due] for each in events), tuple(each[~is_due] for each in events)
