"""Instances of gateways, and decisions that take time, for [cluster.gateways]."""
from functools import partial
from typing import Annotated

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from simulator.assembly.parts.base import Part
from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature
from simulator.domain.columns import Column
from simulator.domain.gateways import MEASURED, GatewaysParameters
from simulator.errors import InputErrors, KeyFault
from simulator.results.gateways import SUMMARY_KEYS, metrics_of

KEY = "cluster.gateways"
NO_SESSIONS = f'{KEY}.assignment: expected "round_robin" or "random" where no request has a session, found "session"'
SEVERAL = Feature("several gateways", f"{KEY}.count", 1)
BUSY = Feature("gateways with decisions that take time", KEY, value=lambda place: (
    (table := place.cluster.gateways) and table.takes_time and table))
BY_DEPARTURES = Feature("a gateway queue that departures pass on", "cluster.gateway_queue.dispatch", "ticks")
ONE_STAGE = "a gateway holds requests back for one of the two"


SECOND_ROUTER = "an instance keeps requests from whole replicas, and a second router chooses among ranks"


def _guards(title: str, key: str) -> Feature:
    """Return the feature of guards that each of several gateways has for itself."""
    return Feature(f"{title} of several gateways", f"cluster.{key}", value=lambda place: (
        place.cluster.gateways and place.cluster.gateways.count > 1 and getattr(place.cluster, key)))


class Gateways(Part):
    """Several instances of a gateway, and workers that take time to decide."""

    keys = {KEY: Annotated[GatewaysParameters | None, Meta(description=(
        "instances of the gateway, and the time of their decisions; absent: one, and decisions take no time"))]}
    columns = {
        "gateway": Column("", "[cluster.gateways] instance that decided about the request, numbered on from region to "
                          "region; -1: it did not come to one"),
        "gateway_wait_ns": Column("ns", "time for which it waited for a worker of its gateway"),
        "gateway_decision_ns": Column("ns", "time for which a worker of its gateway decided about it")}
    summary_keys = SUMMARY_KEYS
    conflicts = (
        Conflict(SEVERAL, has.ROLES, "the routers of both legs share one account"),
        Conflict(SEVERAL, BY_DEPARTURES, "an instance without requests in flight would wait for ever"),
        Conflict(SEVERAL, Feature("programs of agents", "cluster.programs"),
                 "one policy holds the turns of all programs back"),
        Conflict(_guards("cooldowns", "cooldown"), has.RANKS, SECOND_ROUTER),
        Conflict(_guards("circuit breakers", "breaker"), has.RANKS, SECOND_ROUTER),
        Conflict(BUSY, has.ROLES, "a request with two legs needs two decisions"),
        Conflict(BUSY, Feature("a queue in front of the router", "cluster.routing.queue"), ONE_STAGE),
        Conflict(BUSY, Feature("programs of agents", "cluster.programs"), ONE_STAGE),
        Conflict(BUSY, Feature("encode pools", "embeddings", phrase='pools of role "encode"'), ONE_STAGE),
        Conflict(BUSY, Feature("times of routing decisions", "cluster.routing.latency_s", 0.0),
                 "both say how long a decision takes"),
    )

    def meet(self, prepared) -> None:
        """See Part."""
        sessions = prepared.workload.demands["session"]
        if self._table.assignment == "session" and len(sessions) and (sessions < 0).all():
            raise InputErrors([KeyFault(NO_SESSIONS)])

    def plan(self, plan, sink):
        """See Part; where decisions take time, requests wait at the gateway."""
        plan, table = super().plan(plan, sink), self._table
        if table.count > 1 and self.experiment.cluster.regions is None:         # else these have instances each
            plan = replace(plan, front=multiplied(plan.front, table.count, table.assignment))
        return replace(plan, keeps_journeys=plan.keeps_journeys or table.takes_time)

    def operations(self, sink) -> tuple:
        if not self._table.takes_time:
            return ()
        from simulator.engine.operations.gateway_workers import GatewayWorkers
        from simulator.routing.instances.base import Assignment

        table = self._table
        return (partial(_workers, GatewayWorkers, Assignment, (
            table.decision_ns, table.decision_us_per_replica * 1e3, table.num_workers)),)

    def report(self, run, cluster) -> None:
        """See Part: the instance of each request."""
        if self._table.takes_time:
            found = [workers["instances"] for workers in run.records["gateway_workers"]]
        elif self._table.count > 1:
            found = [_assignment(gateway.router).instances for gateway in cluster.gateways]
        else:
            return
        run.columns["gateway"] = np.maximum.reduce(found)
        run.records["gateways"] = [(instances, self._table.count) for instances in found]

    def summary(self, run, summary: dict) -> dict:
        """See Part."""
        if "gateways" not in run.records:
            return {}
        metrics, notes = metrics_of(run, run.records["gateways"], self._table.num_workers)
        measured = self._table.like and self._table.decision_us is None and MEASURED[self._table.like].note
        return {"gateways": metrics, "diagnosis": [*notes, *([f"[{KEY}] {measured}"] if measured else ())]}

    @property
    def _table(self) -> GatewaysParameters:
        return self.experiment.cluster.gateways


def multiplied(front, count: int, way: str, num_groups: int = 1):
    """Return the settings of a gateway with `count` instances.

    Each has a router and an admission policy of its own.

    way, num_groups : as `routing.instances.base.Assignment` takes them.
    """
    from simulator.engine.gateway.instanced_admission import InstancedAdmission, InstancedPolicy
    from simulator.routing.instances.router import Instanced, Instances

    front = replace(front, router=Instances, router_parameters=Instanced(
        count, way, front.router, front.router_parameters, groups=num_groups))
    return front if front.admission is None else replace(
        front, admission=InstancedAdmission, admission_parameters=InstancedPolicy(
            front.admission, front.admission_parameters))


def routers_of(router):
    """Return the router among instances or replicas; a second router may choose ranks."""
    return getattr(router, "first", router)


def _assignment(router):
    """Return the assignment of a router to instances; None: there is one instance."""
    return getattr(routers_of(router), "assignment", None)


def _workers(operation, assignment, settings, fleet, gateways, plan):
    """Return the operation of the workers of all gateways."""
    demands = fleet.workload.demands
    return operation(fleet, gateways, [_assignment(gateway.router) or assignment(1, "round_robin", demands)
                                       for gateway in gateways], settings)
