"""`saturation_v1`: one replica more or less by the spare KV cache and queue of the others, llm-d's first analyser.

Source: llm-d/llm-d-workload-variant-autoscaler@b08b1c77, internal/saturation, its rules restated.
"""
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.scaling.base import Autoscaler

Share = Annotated[float, Meta(ge=0, le=1, extra={"unit": "ratio"})]
Requests = Annotated[float, Meta(ge=0, le=1e6, extra={"unit": "requests"})]


class SaturationV1Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Thresholds of saturation, and the spare room that replicas are to keep."""

    kv_cache_threshold: Annotated[Share, Meta(description=(
        "share of a KV cache from which a replica counts as saturated"))] = 0.8
    queue_threshold: Annotated[Requests, Meta(description=(
        "waiting requests from which a replica counts as saturated"))] = 5.0
    kv_spare_trigger: Annotated[Share, Meta(description=(
        "a replica is added if the mean of kv_cache_threshold less the share in use is below this, over the replicas "
        "that are not saturated"))] = 0.1
    queue_spare_trigger: Annotated[Requests, Meta(description=(
        "a replica is added if the mean of queue_threshold less the waiting requests is below this"))] = 3.0


class SaturationV1(Autoscaler):
    """A step at a time; see `SaturationV1Parameters`. None while replicas start.

    The cheapest pool with room grows; the dearest pool with more than one replica shrinks, if at least two replicas
    are not saturated, and their load, spread over one less, leaves both spare rooms. Differences from
    llm-d: KV caches and queues as of the decision, in place of their maximum in the last minute.
    """

    Parameters = SaturationV1Parameters
    why_no_roles = "it knows replicas that serve whole requests"

    @classmethod
    def notes(cls, parameters):
        """See Autoscaler."""
        return ("autoscaling: loads as of each decision replace their maximum in the last minute",)

    def decide(self, observation):
        """See Autoscaler."""
        if observation.starting > 0:
            return {}
        if observation.serving == 0:
            return self._grown(observation) if observation.queued > 0 else {}
        given, states = self.parameters, observation.states()
        used, waiting = states["used_blocks"] / states["num_blocks"], states["waiting"]
        is_free = (used < given.kv_cache_threshold) & (waiting < given.queue_threshold)
        if not self._keeps_room(used[is_free].sum(), waiting[is_free].sum(), int(is_free.sum())):
            return self._grown(observation)
        if is_free.sum() >= 2 and self._keeps_room(used[is_free].sum(), waiting[is_free].sum(), int(is_free.sum()) - 1):
            several = [variant for variant in observation.variants if variant.serving > 1 and variant.removable > 0]
            if several:
                return {max(several, key=lambda each: (each.cost_per_hour, each.index)).index: -1}
        return {}

    def _keeps_room(self, used, waiting, replicas):
        """Return whether loads spread over replicas leave both spare rooms; without replicas there are none."""
        given = self.parameters
        spare = (given.kv_cache_threshold - used / replicas, given.queue_threshold - waiting / replicas) if (
            replicas) else (0.0, 0.0)
        return spare[0] >= given.kv_spare_trigger and spare[1] >= given.queue_spare_trigger

    def _grown(self, observation):
        with_room = [variant for variant in observation.variants if variant.room > 0]
        return {min(with_room, key=lambda each: each.cost_per_hour).index: 1} if with_room else {}
