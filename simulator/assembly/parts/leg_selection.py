"""Selection of pools for the legs of requests, for [cluster.leg_selection].

The router of a role becomes one router for each of the pools; each sees the replicas of its pool alone. As length,
bounds and priority of a request are known when it comes, all pools are selected before the run.
"""
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from simulator.assembly.parts.base import Fault, Part
from simulator.assembly.parts.pool_selection import bounds_ms
from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature, without
from simulator.errors import did_you_mean
from simulator.routing.leg_selection import LegSelection

KEY = "cluster.leg_selection"
LEGS = Feature("pools selected for each leg", KEY)


def _routes(place) -> str | None:
    """Return the policy of a router that chooses for both legs, or turns requests away, if there is one."""
    split = place.cluster.disaggregation
    tables = (place.cluster.routing, split and split.prefill, split and split.decode)
    return next((table.policy for table in tables if table is not None and table.policy == "llumnix"), None)


class LegPools(Part):
    """Selection of a pool for each leg of a request."""

    keys = {KEY: Annotated[LegSelection | None, Meta(description=(
        "selection of a pool for the prompt of a request, and of one for its output; absent: one router chooses among "
        "all replicas of a role"))]}
    conflicts = (
        Conflict(LEGS, without(has.ROLES), "no request has two legs"),
        Conflict(LEGS, has.WHOLE_BESIDE, "such a replica would belong to pools of both kinds"),
        Conflict(LEGS, Feature("pools by model", "pools[].serves"), "a request would have to stay with its model"),
        Conflict(LEGS, Feature("Llumnix's router for a leg", "cluster.routing.policy", value=_routes),
                 "one scheduler sees the replicas of all pools"),
        Conflict(LEGS, Feature("rescheduling", "cluster.rescheduling"), "requests would leave their pool"),
    )

    @classmethod
    def faults(cls, sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
        cluster, pools = sections["cluster"], sections["pools"]
        if cluster in (None, missing) or pools is missing or cluster.leg_selection is None:
            return
        roles = {pool.name: pool.role for pool in pools if pool.role != "encode"}
        for role, selection in cluster.leg_selection.legs.items():
            for name in selection.names:
                if name not in roles:
                    yield ("cluster", "leg_selection", role), f'there is no pool "{name}"{did_you_mean(name, roles)}'
                elif roles[name] != role:
                    yield ("cluster", "leg_selection", role), (
                        f'expected pools with role = "{role}", found "{name}" with role = "{roles[name]}"')

    def meet(self, prepared) -> None:
        """See Part: the pool of each leg of all requests."""
        workload = prepared.workload
        demands = workload.demands
        bounds = tuple(bounds_ms(self.experiment.slo, demands["slo_class"], workload.labels.get("slo_class", ())))
        isl, priority = (each.astype(float) for each in (workload.requests["prompt_tokens"], demands["priority"]))
        self._chosen = {role: each.select(isl, *bounds, priority).astype(np.int32)
                        for role, each in self.experiment.cluster.leg_selection.legs.items()}

    def plan(self, plan, sink):
        """See Part; the gateway of a role has an instance for each pool."""
        from simulator.engine.hand_over.build import Split
        from simulator.routing.instances.router import Instanced, Instances

        plan = super().plan(plan, sink)
        fronts = {}
        for role, selection in self.experiment.cluster.leg_selection.legs.items():
            front = getattr(plan.split.settings, f"{role}_front")
            fronts[f"{role}_front"] = replace(front, router=Instances, router_parameters=Instanced(
                len(selection.names), "round_robin", front.router, front.router_parameters,
                tuple(selection.names), self._chosen[role]))
        return replace(plan, split=Split(replace(plan.split.settings, **fronts)))

    def summary(self, run, summary: dict) -> dict:
        """See Part."""
        return {"diagnosis": [f"{KEY}: a leg stays with its pool if the replicas there fail or are closed; a prompt "
                              "without a replica is computed by the replica for its output"]}
