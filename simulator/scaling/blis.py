"""`blis`: as many replicas as the tokens in KV caches and queues need.

Source: BLIS (inference-sim) at f90a1e3a, sim/cluster: its "V2" saturation analyser, which follows llm-d's
workload-variant autoscaler, and its unlimited engine.
"""
import math
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.scaling.base import Autoscaler

Share = Annotated[float, Meta(gt=0, le=1)]


class BlisParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Thresholds of the analyser."""

    kv_cache_threshold: Annotated[Share, Meta(description="share of a KV cache that counts as supply")] = 0.8
    scale_up_threshold: Annotated[Share, Meta(description="demand / supply above which replicas are added")] = 0.8
    scale_down_boundary: Annotated[Share, Meta(description="demand / supply below which replicas are removed")] = 0.4
    avg_input_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1, description=(
        "tokens that a waiting request is assumed to need"))] = 512


class Blis(Autoscaler):
    """Supply and demand in tokens; see `BlisParameters`."""

    Parameters = BlisParameters
    why_no_roles = "BLIS's analyser knows replicas that do whole requests"

    def decide(self, observation):
        """See Autoscaler."""
        supply, demand, coming = self._balance(observation)
        required = demand / self.parameters.scale_up_threshold - (supply + coming)
        if required > 0:
            return self._grow(observation, required)
        needed = demand / self.parameters.scale_down_boundary
        dearest_supply = max((self._supply(each) for each in observation.variants if each.serving), default=0.0)
        if observation.serving > 1 and supply - needed > 0 and supply - dearest_supply > needed:
            return self._shrink(observation, supply - needed)
        return {}

    def _supply(self, variant):
        """Return the supply of one replica."""
        return variant.capacity_tokens * self.parameters.kv_cache_threshold

    def _balance(self, observation):
        """Return (supply of serving replicas, their demand, supply of starting replicas)."""
        supply = demand = coming = 0.0
        for variant in observation.variants:
            states = variant.states
            supply += variant.serving * self._supply(variant)
            coming += variant.starting * self._supply(variant)
            demand += int((states["used_blocks"].astype(int) * states["block_size"]).sum())
            demand += int(states["waiting"].sum()) * self.parameters.avg_input_tokens
        return supply, demand, coming

    def _grow(self, observation, required):
        open_to_more = [variant for variant in observation.variants if variant.room > 0]
        if not open_to_more:
            return {}
        cheapest = min(open_to_more, key=lambda variant: variant.cost_per_hour)
        return {cheapest.index: math.ceil(required / self._supply(cheapest))}

    def _shrink(self, observation, spare):
        with_some = [variant for variant in observation.variants if variant.removable > 0]
        if not with_some:
            return {}
        dearest = max(with_some, key=lambda variant: variant.cost_per_hour)
        return {dearest.index: -max(math.floor(spare / self._supply(dearest)), 1)}
