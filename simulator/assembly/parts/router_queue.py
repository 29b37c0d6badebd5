"""Requests that wait in front of a router, for [cluster.routing.queue]."""
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from simulator.assembly.parts.base import Fault, Part
from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature
from simulator.config.words import show

KEY = "cluster.routing.queue"
QUEUE = Feature("a queue in front of the router", KEY)
WHOLE = "it holds whole requests, in front of one router that sees all replicas"


class RouterQueuePart(Part):
    """Requests that wait in front of a router."""

    conflicts = (Conflict(QUEUE, has.ROLES, WHOLE), Conflict(QUEUE, has.RANKS, WHOLE))

    @classmethod
    def faults(cls, sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
        cluster = sections["cluster"]
        if cluster is missing or cluster.routing.queue is None:
            return
        routing = cluster.routing
        path = ("cluster", "routing")
        if routing.policy != "dynamo":
            yield (*path, "policy"), (
                f'expected "dynamo" with [{KEY}], found {show(routing.policy)}: the queue reads its account')
        elif routing.parameters.load != "router":
            yield (*path, "load"), (
                f'expected "router" with [{KEY}], found {show(routing.parameters.load)}: the queue reads the account')
        for key in ("latency_s", "snapshot_refresh_interval_s"):
            if getattr(routing, key):
                yield (*path, key), (f"expected 0 with [{KEY}], found {show(getattr(routing, key))}: the queue decides "
                                     "by an account of the same instant")
        if any(pool.role == "encode" for pool in sections["pools"]):
            yield (*path, "queue"), (
                'expected none with pools of role "encode": requests already wait for these before the router')

    def plan(self, plan, sink):
        """See Part; requests wait at the gateway."""
        return replace(super().plan(plan, sink), keeps_journeys=True)

    def operations(self, sink) -> tuple:
        from simulator.engine.operations.router_queues import RouterQueues
        from simulator.routing.queueing.kv_queue import KvQueue

        return (partial(_queues, RouterQueues, KvQueue, self.experiment.cluster.routing.queue),)


def _queues(kind, queue, parameters, fleet, gateways, plan):
    return kind(fleet, gateways, queue, parameters)
