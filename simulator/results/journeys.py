"""The ways of requests to their replicas, whoever kept account of them."""
import numpy as np

from simulator.domain import records
from simulator.domain.run import Run

NO_REPLICA = records.CAUSE_NAMES.index("no_replica")
MOVED, RETRIED = records.LEG_ENDS.index("moved"), records.LEG_ENDS.index("retried")


def journeys_of(run: Run) -> np.ndarray | None:
    """Return the journey of each request, `records.JOURNEY`.

    None for one replica that nothing stands before. With several replicas and no account of journeys, requests went to
    their replicas at once: they were admitted and dispatched when they came, and only the lack of a replica kept a
    request from all of them.
    """
    if run.journeys is not None or len(run.replicas) < 2:
        return run.journeys
    requests = run.workload.requests
    journeys = np.zeros(len(requests), records.JOURNEY)
    reached_ns = np.where(requests["replica"] >= 0, requests["arrival_ns"], records.NEVER_NS)
    journeys["admitted_ns"] = journeys["dispatched_ns"] = reached_ns
    journeys["cause"] = np.where((requests["status"] == records.REJECTED) & (requests["replica"] < 0), NO_REPLICA, 0)
    return journeys


def retries_of(run: Run) -> dict[int, list[tuple[int, int, int]]]:
    """Return the stays from which requests came back since their replica failed, in order of time, by row.

    Each as (replica, sent_ns, returned_ns).
    """
    retries = {}
    if run.legs is not None:
        legs = run.legs[run.legs["how"] == RETRIED]
        for row, *stay in zip(*(legs[name].tolist() for name in ("request", "replica", "sent_ns", "ended_ns")),
                              strict=True):
            retries.setdefault(row, []).append(tuple(stay))
    return retries


def moves_of(run: Run) -> list[tuple[int, int, int, int, int]]:
    """Return the moves between replicas, in the order in which they came to their end.

    Each as (row, source, destination, began_ns, ended_ns); those still under way are left out.
    """
    if run.legs is None:
        return []
    legs = run.legs[np.argsort(run.legs["request"], kind="stable")]
    left = np.flatnonzero(legs["how"] == MOVED)         # the next leg of the same request follows at once
    left = left[legs["enqueued_ns"][left + 1] >= 0]
    before, after = legs[left], legs[left + 1]
    order = np.argsort(after["enqueued_ns"], kind="stable")
    columns = (before["request"], before["replica"], after["replica"], after["sent_ns"], after["enqueued_ns"])
    return list(zip(*(column[order].tolist() for column in columns), strict=True))
