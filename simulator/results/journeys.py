"""The ways of requests to their replicas, recorded by the gateway or derived."""
import numpy as np

from simulator.domain import records
from simulator.domain.run import Run

NO_REPLICA = records.CAUSE_NAMES.index("no_replica")
MOVED, RETRIED = records.LEG_ENDS.index("moved"), records.LEG_ENDS.index("retried")


Columns = np.ndarray | dict[str, np.ndarray]        # a table with columns to be read by name


def journeys_of(run: Run) -> Columns | None:
    """Return the journey of each request: the columns of `records.JOURNEY`.

    None for one replica without a gateway. With several replicas and no record of journeys, requests went to
    their replicas at once: they were admitted and dispatched when they arrived, and only the lack of a replica kept a
    request from this. The columns are then derived: a table of journeys would be as large as all
    other data of a request.
    """
    if run.journeys is not None or len(run.replicas) < 2:
        return run.journeys
    requests = run.workload.requests
    reached_ns, is_sent = requests["arrival_ns"], requests["replica"] >= 0
    if not is_sent.all():
        reached_ns = np.where(is_sent, reached_ns, records.NEVER_NS)
    cause = np.zeros(len(requests), np.int8)
    cause[(requests["status"] == records.REJECTED) & ~is_sent] = NO_REPLICA
    nothing = {name: np.broadcast_to(np.zeros((), records.JOURNEY[name]), len(requests))
               for name in ("downtime_ns", "retries", "migrations")}
    return {"admitted_ns": reached_ns, "dispatched_ns": reached_ns, "cause": cause, **nothing}


def retries_of(run: Run) -> dict[int, list[tuple[int, int, int]]]:
    """Return the stays that ended with the failure of a replica, by row.

    Each as (replica, sent_ns, returned_ns), in order of time; the request went back to its gateway.
    """
    retries = {}
    if run.legs is not None:
        legs = run.legs[run.legs["how"] == RETRIED]
        for row, *stay in zip(*(legs[name].tolist() for name in ("request", "replica", "sent_ns", "ended_ns")),
                              strict=True):
            retries.setdefault(row, []).append(tuple(stay))
    return retries


def moves_of(run: Run) -> list[tuple[int, int, int, int, int]]:
    """Return the moves between replicas, in the order in which they ended.

    Each as (row, source, destination, began_ns, ended_ns); moves in progress are left out.
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
