"""The ways of requests to their replicas, whoever kept account of them."""
import numpy as np

from simulator.domain import records
from simulator.domain.run import Run

NO_REPLICA = records.CAUSE_NAMES.index("no_replica")


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
