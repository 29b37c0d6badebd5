"""Iterations as batches: one number for all pipeline stages, and the requests in each.

/iterations counts the requests of a batch and does not name them. A request can be in a batch only while it stays at
that replica, from its first schedule to its last token; where the number of staying requests equals that of the
batch, its requests are known. Where a request stays and is not served (it was preempted, passed over, or its batch is
another of several in flight), or its stay is not known to the end, the requests of the batch are left blank.
"""
from functools import cached_property
from typing import NamedTuple

import numpy as np

from simulator.domain import records

NEVER = records.NEVER_NS


class Stays(NamedTuple):
    """Stays of requests at replicas, one row each: equally long arrays."""

    request: np.ndarray         # row in the table of arrived requests
    replica: np.ndarray
    from_ns: np.ndarray         # first scheduled there
    to_ns: np.ndarray           # it left; NEVER: not known, it counts as staying to the end
    token_ns: np.ndarray        # end of its first batch there; NEVER: not known, it began after `from_ns`


class Lane(NamedTuple):
    """One replica: its batches in order of start, and the batches of each stay."""

    batches: np.ndarray         # places in /iterations
    stays: np.ndarray           # places in `Stays`
    first: np.ndarray           # of `batches`, for each of `stays`
    last: np.ndarray            # behind the last
    is_certain: np.ndarray      # for each of `batches`: its requests are known


class Batches:
    """The batches of a run.

    num_stages : pipeline stages, the most of any replica.
    stays : of requests at replicas; None: the tables do not have all stays.
    number : the batch of each row of /iterations, from 0 in order of start; -1: its first stage is not found.

    Parameters
    ----------
    iterations : rows of /iterations.
    requests : rows of /requests.
    legs : as in `stays_of`.
    """

    def __init__(self, iterations: np.ndarray, requests: np.ndarray, legs: np.ndarray | None):
        self._iterations = iterations
        self._requests = requests
        self.stays = stays_of(requests, legs)
        self.num_stages = int(iterations["stage"].max(initial=0)) + 1
        self.number = self._numbers()

    @cached_property
    def first_rows(self) -> np.ndarray:
        """Places in /iterations of the first stage of each batch, by its number."""
        return np.flatnonzero(self._iterations["stage"] == 0)

    @cached_property
    def end_ns(self) -> np.ndarray:
        """End of the last stage of each batch; NEVER: it is not in the table."""
        end_ns = np.full(len(self.first_rows), NEVER)
        rows = np.flatnonzero(self.is_last_stage & (self.number >= 0))
        end_ns[self.number[rows]] = self._iterations["begin_ns"][rows] + self._iterations["duration_ns"][rows]
        return end_ns

    @cached_property
    def lanes(self) -> list[Lane]:
        """The requests in the batches of each replica; empty: not known for all."""
        if self.num_stages > 1 or self.stays is None:
            return []
        return [self._lane(np.flatnonzero(self._iterations["replica"] == replica), self.stays, replica)
                for replica in np.unique(self._iterations["replica"]).tolist()]

    def spent_ns(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the time that each request executed, and the time that it did not.

        NaN: not known. They are in /requests if the run recorded them; else they follow from batches. Without
        pipeline stages both are all the time since it was scheduled; with them Vidur leaves out the wait for the first.
        """
        requests = self._requests
        has_sums = "execution_ns" in requests.dtype.names
        execution_ns = requests["execution_ns"].astype(float) if has_sums else self._execution_ns()
        if has_sums and self.num_stages > 1:
            return execution_ns, requests["preempted_ns"].astype(float)
        return execution_ns, requests["completed_ns"] - requests["scheduled_ns"] - execution_ns

    def _execution_ns(self) -> np.ndarray:
        total_ns = np.zeros(len(self._requests))
        if not self.lanes:
            return total_ns * np.nan
        for lane in self.lanes:
            spent_ns = _running_total(self._iterations["duration_ns"][lane.batches])
            doubts = _running_total(~lane.is_certain)
            of_stays = (spent_ns[lane.last] - spent_ns[lane.first]).astype(float)
            of_stays[doubts[lane.last] > doubts[lane.first]] = np.nan
            np.add.at(total_ns, self.stays.request[lane.stays], of_stays)
        return total_ns

    def _lane(self, rows: np.ndarray, stays: Stays, replica: int) -> Lane:
        here = np.flatnonzero(stays.replica == replica)
        start_ns = self._iterations["start_ns"][rows]
        end_ns = self._iterations["begin_ns"][rows] + self._iterations["duration_ns"][rows]
        token_ns = stays.token_ns[here]
        first = np.where(token_ns == NEVER, np.searchsorted(start_ns, stays.from_ns[here], "left"),
                         np.searchsorted(end_ns, token_ns, "left"))
        to_ns = stays.to_ns[here]
        last = np.where(to_ns == NEVER, len(rows), np.searchsorted(end_ns, to_ns, "right"))
        last = np.maximum(first, last)
        change = np.zeros(len(rows) + 1, np.int64)
        np.add.at(change, first, 1)
        np.add.at(change, last, -1)
        return Lane(rows, here, first, last, np.cumsum(change[:-1]) == self._iterations["sequences"][rows])

    def _numbers(self) -> np.ndarray:
        """Match rows of later stages to rows of the first: batches pass the stages of a replica in order."""
        stage, replica = self._iterations["stage"], self._iterations["replica"]
        number = np.full(len(stage), -1, np.int64)
        heads = stage == 0
        number[heads] = np.arange(np.count_nonzero(heads))
        for each in np.unique(replica[~heads]).tolist():
            own = np.flatnonzero(replica == each)
            head = own[stage[own] == 0]
            for later in range(1, self.num_stages):
                rows = own[stage[own] == later]
                if len(rows) == len(head) and _are_same(self._iterations, head, rows):
                    number[rows] = number[head]     # else a batch was lost between two stages: none is matched
        return number

    @cached_property
    def is_last_stage(self) -> np.ndarray:
        """Mask of the rows of /iterations that are of the last stage of their replica."""
        replica = self._iterations["replica"]
        last = np.zeros(int(replica.max(initial=-1)) + 1, np.int64)
        np.maximum.at(last, replica, self._iterations["stage"])
        return self._iterations["stage"] == last[replica]


def stays_of(requests: np.ndarray, legs: np.ndarray | None) -> Stays | None:
    """Return the stays of requests at replicas; None: not all are known.

    Parameters
    ----------
    requests : rows of /requests.
    legs : rows of /legs, `request` a place in `requests`; None: each stayed at one replica, or was handed over
        from its prefill replica.
    """
    if legs is not None:
        served = legs[legs["scheduled_ns"] >= 0]
        nothing = np.full(len(served), NEVER)
        return Stays(served["request"], served["replica"], served["scheduled_ns"], served["ended_ns"], nothing)
    if (requests["prefill_replica"] >= 0).any():
        return _handed_over(requests) if "transfer_end_ns" in requests.dtype.names else None
    return _at_one_replica(requests, np.flatnonzero(requests["scheduled_ns"] >= 0))


def _at_one_replica(requests: np.ndarray, rows: np.ndarray) -> Stays:
    return Stays(rows, requests["replica"][rows], requests["scheduled_ns"][rows], _completed_ns(requests)[rows],
                 np.full(len(rows), NEVER))


def _handed_over(requests: np.ndarray) -> Stays:
    """Return stays where some requests have one at a prefill replica, and one where they decode."""
    scheduled, moved = requests["scheduled_ns"] >= 0, requests["prefill_replica"] >= 0
    rows = np.flatnonzero(scheduled & moved)
    prefill = Stays(rows, requests["prefill_replica"][rows], requests["scheduled_ns"][rows],
                    requests["prefill_done_ns"][rows], np.full(len(rows), NEVER))
    rows = np.flatnonzero(scheduled & moved & (requests["transfer_end_ns"] >= 0))
    first_ns, moved_ns = requests["first_token_ns"][rows], requests["transfer_end_ns"][rows]
    decode = Stays(rows, requests["replica"][rows], moved_ns, _completed_ns(requests)[rows],
                   np.where(first_ns > moved_ns, first_ns, NEVER))
    whole = _at_one_replica(requests, np.flatnonzero(scheduled & ~moved))
    return Stays(*map(np.concatenate, zip(prefill, decode, whole, strict=True)))


def _completed_ns(requests: np.ndarray) -> np.ndarray:
    return np.where(requests["status"] == records.COMPLETED, requests["completed_ns"], NEVER)


def _are_same(iterations: np.ndarray, one: np.ndarray, other: np.ndarray) -> bool:
    return all(np.array_equal(iterations[name][one], iterations[name][other])
               for name in ("sequences", "prefill_tokens", "decode_tokens"))


def _running_total(values: np.ndarray) -> np.ndarray:
    """Return the sums of the first 0, 1, ... values, int64 (n + 1,)."""
    return np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
