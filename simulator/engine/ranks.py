"""Data-parallel ranks: their common clock, and the router among the ranks of a replica."""
from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Any

import msgspec

from simulator.engine.fleet.fleet import Fleet
from simulator.engine.fleet.live_view import LiveView
from simulator.engine.plan import ClusterPlan, GatewayPlan, Pool
from simulator.engine.replica.lock_step import LockStep
from simulator.engine.replica.replica import Replica
from simulator.routing.base import RoutingContext
from simulator.scheduling.contract import SchedulerFacts


class RankFront(msgspec.Struct, frozen=True):
    """Router among the ranks of a replica, once the replica is chosen.

    both : Router subclass that calls the two routers in turn, see routing.ranks.
    router, parameters : a Router subclass and its `Parameters`.
    snapshot_interval_ns : age up to which a snapshot of the ranks' reports is used again; 0: always live.
    """

    both: type
    router: type
    parameters: Any
    snapshot_interval_ns: int = 0


def tie(replicas: list[Replica], pool: Pool, facts: SchedulerFacts, plan: ClusterPlan) -> None:
    """Give each `pool.ranks` replicas in lock step one LockStep."""
    if not pool.is_in_lock_step:
        return
    unsettled = {"pipeline stages": pool.latency.num_stages > 1,
                 "migration": plan.moves_requests,
                 "iterations that end when they begin": any(replica.scheduler.ends_at_start for replica in replicas)}
    found = [what for what, is_there in unsettled.items() if is_there]
    if found or len(replicas) % pool.ranks:
        raise ValueError(f"{pool.ranks} ranks in lock step: {' and '.join(found)} cannot be had together with them yet"
                         if found else f"{len(replicas)} replicas are no groups of {pool.ranks} ranks")
    for first in range(0, len(replicas), pool.ranks):
        LockStep(replicas[first:first + pool.ranks], pool.latency, pool.lock_step, facts.is_async)


def router_of(entries: Sequence, context: RoutingContext, fleet: Fleet, plan: ClusterPlan, front: GatewayPlan):
    """Return the router of a front, and the view of the ranks it chooses among.

    With ranks two routers act in turn; else there is no view: None. entries : of build.PoolEntry.
    """
    sizes = _choices(entries, plan.pools)
    if max(sizes) == 1:
        return front.router(front.router_parameters, context), None
    ranks = front.ranks
    reports = LiveView(len(entries), [fleet.replicas[entry.replica] for entry in entries], fleet.shared,
                       (ranks.snapshot_interval_ns, 0))
    both = ranks.both((sizes, (front.router, front.router_parameters), (ranks.router, ranks.parameters), reports),
                      context)
    limits = [fleet.limits_of(entries[first].replica) for first in accumulate(sizes[:-1], initial=0)]
    if any(limits):
        both.heed(limits)
    return both, reports


def _choices(entries: Sequence, pools: tuple[Pool, ...]) -> list[int]:
    """Return how many ranks each choice of the first router leaves to the second, in order of entries."""
    return [len(list(group)) for _, group in groupby(
        entries, lambda entry: (entry.pool, entry.place // pools[entry.pool].ranks_per_choice))]
