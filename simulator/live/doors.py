"""Replicas with a port of their own each: clients, or a gateway of theirs, choose the replica."""
from msgspec.structs import replace

from simulator.config.experiment import Experiment
from simulator.config.load import changed
from simulator.errors import InputErrors, KeyFault


def with_doors(experiment: Experiment) -> tuple[Experiment, tuple[str, ...]]:
    """Return the experiment with each replica as a pool, and the names of the pools.

    Each pool serves the requests to it alone.

    The record of a session has the name in its column model, so that a run sends each request to the same replica.
    Raises InputErrors: the number of replicas may change, or requests may move.
    """
    faults = []
    if experiment.autoscaling is not None:
        faults.append("autoscaling: expected none with --replica-ports: each port has a replica")
    if experiment.cluster.rescheduling is not None:
        faults.append("cluster.rescheduling: expected none with --replica-ports: a request stays at its port")
    if faults:
        raise InputErrors(map(KeyFault, faults))
    pools = []
    for pool in experiment.all_pools():
        pools += [replace(pool, name=f"replica-{len(pools) + i}", replicas=1, max_replicas=None,
                          serves=f"replica-{len(pools) + i}") for i in range(pool.at_start)]
    return changed(experiment, pools=tuple(pools)), tuple(pool.name for pool in pools)
