"""Weights of pools and their limits a minute, for routers."""
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from simulator import registry
from simulator.assembly.parts.base import Part
from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature, Place
from simulator.routing.parts.quotas import Quota

Weight = Annotated[float, Meta(ge=0, le=1e9)]
Limit = Annotated[float, Meta(gt=0, le=1e15)]


def _unread(key: str) -> Conflict:
    """Return the row of a key of pools with a router that does not read it."""
    return Conflict(
        Feature(f"pools.{key}", key),
        Feature(f"routers that do not read pools.{key}", "cluster.routing.policy", value=lambda place: (
            not _reads(place, key) and place.cluster.routing.policy)),
        "the router does not read it")


def _reads(place: Place, key: str) -> bool:
    """Return whether the router may read a key; a user's router may read all keys."""
    policy = place.cluster.routing.policy
    return ":" in policy or key in registry.load("router", policy).reads_quotas


class Quotas(Part):
    """Weights and limits of the replicas of a pool, for the router."""

    keys = {
        "pools[].weight": Annotated[Weight | None, Meta(extra={"unit": "weight"}, description=(
            "relative share of the requests for each replica of the pool, for router weighted_random; absent: 0"))],
        "pools[].rpm": Annotated[Limit | None, Meta(extra={"unit": "requests/min"}, description=(
            "requests a minute for each replica of the pool: a limit for the routers litellm_latency and "
            "litellm_usage, a weight for weighted_random without pools.weight; absent: no limit"))],
        "pools[].tpm": Annotated[Limit | None, Meta(extra={"unit": "tokens/min"}, description=(
            "tokens a minute for each replica of the pool, prompts and outputs: as pools.rpm; a weight for "
            "weighted_random without pools.weight and pools.rpm; absent: no limit"))]}
    conflicts = (
        *(_unread(key) for key in Quota._fields),
        *(Conflict(Feature(f"pools.{key}", key), has.ROLES,
                   "the weights and limits are of replicas that serve whole requests") for key in Quota._fields))

    def plan(self, plan, sink):
        """See Part; the router of each gateway gets the quotas of all pools."""
        quotas = tuple(Quota(pool.weight, pool.rpm, pool.tpm) for pool in self.experiment.all_pools())
        return replace(super().plan(plan, sink), front=replace(plan.front, quotas=quotas))
