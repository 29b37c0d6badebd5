"""`saturation_v2`: replicas by supply and demand in tokens, bound by memory or by computation, llm-d's second analyser.

Source: llm-d/llm-d-workload-variant-autoscaler@b08b1c77, internal/engines/analyzers/saturation_v2 and
internal/engines/pipeline/cost_aware_optimizer.go, the rules restated.
"""
import collections
import math
import statistics
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.domain import records
from simulator.scaling.base import Autoscaler

SHORT, MEDIUM = 100, 500                # output tokens; capacities that were seen are kept by these classes
KEPT = 10                               # capacities of a class, the last ones
STALE_NS = 24 * 3600 * 10**9            # a class that was not seen for so long is forgotten
WINDOW_NS = 60 * 10**9                  # completed requests of this time give the mean lengths

Share = Annotated[float, Meta(gt=0, le=1)]


class SaturationV2Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Thresholds of the analyser."""

    kv_cache_threshold: Annotated[Share, Meta(description="share of a KV cache that counts as supply")] = 0.8
    queue_threshold: Annotated[int, Meta(ge=1, le=2**31 - 1, extra={"unit": "requests"}, description=(
        "waiting requests from which the tokens in use of a replica are its capacity"))] = 5
    scale_up_threshold: Annotated[Share, Meta(description="demand / supply above which replicas are added")] = 0.85
    scale_down_boundary: Annotated[Share, Meta(description="demand / supply below which replicas are removed")] = 0.7


class SaturationV2(Autoscaler):
    """Supply and demand in tokens.

    demand = tokens in use + waiting requests x mean prompt, of all replicas, and n I (1 - hit rate) + n O for n
    requests at the gateway. A replica supplies kv_cache_threshold x its KV cache, or its capacity of computation if
    the latter is less: the tokens in use when its queue is long, or the mean of the last ten such, or
    min(S, B O / (I + O)) (I + O / 2), with S running requests and B batched tokens at most. A pool supplies the median
    of its replicas for each of its replicas.

    Differences from llm-d: loads as of the decision, in place of their maximum in the last minute; tokens of requests
    at the gateway by the mean prompt alone, in place of the larger of it and a quarter of their bytes.
    """

    Parameters = SaturationV2Parameters
    wants_finished = True
    why_no_roles = "it knows replicas that serve whole requests"

    def __init__(self, parameters):
        super().__init__(parameters)
        self._done = collections.deque()        # (time of the decision, prompt, output tokens)
        self._seen = {}                         # (pool, class of outputs) -> (time, capacities)
        self._last = {}                         # pool -> capacity of a replica, when some served

    @classmethod
    def notes(cls, parameters):
        """See Autoscaler."""
        return ("autoscaling: loads as of each decision replace their maximum in the last minute",)

    def decide(self, observation):
        """See Autoscaler."""
        isl, osl = self._lengths(observation)
        variants = observation.variants
        capacities = [self._capacity(each, isl, osl, observation.now_ns) for each in variants]
        demand = sum(float((tokens_in_use(each.states) + each.states["waiting"] * int(isl)).sum()) for each in variants)
        demand += observation.queued * (isl * (1 - hit_rate(observation.states())) + osl)
        ready = sum(each.serving * capacity for each, capacity in zip(variants, capacities, strict=True))
        starting = sum(each.starting * capacity for each, capacity in zip(variants, capacities, strict=True))
        required = demand / self.parameters.scale_up_threshold - (ready + starting)
        if required > 0:
            return grown(variants, capacities, required)
        return shrunk(variants, capacities, ready - demand / self.parameters.scale_down_boundary)

    def _lengths(self, observation):
        """Return the mean lengths of prompts and answers; 0: not known."""
        done = observation.finished[observation.finished["status"] == records.COMPLETED]
        self._done.extend((observation.now_ns, *row) for row in done[["prompt_tokens", "output_tokens"]].tolist())
        while len(self._done) > 1 and self._done[0][0] <= observation.now_ns - WINDOW_NS:
            self._done.popleft()
        return tuple(sum(row[i] for row in self._done) / len(self._done) for i in (1, 2)) if self._done else (0.0, 0.0)

    def _capacity(self, variant, isl, osl, now_ns):
        """Return the tokens that a replica of a pool supplies."""
        by_memory = int(variant.capacity_tokens * self.parameters.kv_cache_threshold)
        if variant.serving == 0:
            return self._last.get(variant.index, by_memory)
        found = [min(by_memory, self._by_computation(variant.index, state, isl, osl, now_ns) or by_memory)
                 for state in variant.states]
        self._last[variant.index] = statistics.median(found)
        return self._last[variant.index]

    def _by_computation(self, pool, state, isl, osl, now_ns):
        """Return the tokens that bound the computation of a replica; 0: not known."""
        key = pool, (osl >= SHORT) + (osl >= MEDIUM)
        in_use = int(tokens_in_use(state))
        then_ns, kept = self._seen.get(key, (now_ns, collections.deque(maxlen=KEPT)))
        if now_ns - then_ns > STALE_NS:
            kept = collections.deque(maxlen=KEPT)
        if state["waiting"] >= self.parameters.queue_threshold and in_use > 0:
            kept.append(in_use)
            self._seen[key] = now_ns, kept
            return in_use
        if kept:
            return int(sum(kept) / len(kept))
        if osl == 0:
            return 0
        return int(min(state["max_batched_tokens"] * osl / (isl + osl), state["max_running"]) * (isl + osl / 2))


def tokens_in_use(states: np.ndarray) -> np.ndarray:
    """Return the tokens in the KV caches of replicas."""
    return states["used_blocks"].astype(np.int64) * states["block_size"]


def hit_rate(states: np.ndarray) -> float:
    """Return the share of prompt tokens that prefix caches have held so far."""
    looked_up = int(states["prefix_query_tokens"].sum())
    return int(states["prefix_hit_tokens"].sum()) / looked_up if looked_up else 0.0


def grown(variants, capacities, required: float) -> dict[int, int]:
    """Return the changes that add capacity, to the cheapest per token first."""
    changes = {}
    for variant, capacity in sorted(zip(variants, capacities, strict=True), key=lambda each: (
            each[0].cost_per_hour / max(each[1], 1))):
        count = min(math.ceil(required / capacity), variant.room) if required > 0 and capacity > 0 else 0
        if count > 0:
            changes[variant.index] = count
            required -= count * capacity
    return changes


def shrunk(variants, capacities, spare: float) -> dict[int, int]:
    """Return the changes that remove spare capacity, from the dearest first.

    The cheapest pool keeps a replica if no other pool has one.
    """
    changes, there = {}, {each.index: each.serving + each.starting for each in variants}
    cheapest = min(variants, key=lambda each: each.cost_per_hour).index
    for variant, capacity in sorted(zip(variants, capacities, strict=True), key=lambda each: -each[0].cost_per_hour):
        is_last = variant.index == cheapest and not any(count for index, count in there.items() if index != cheapest)
        count = min(math.floor(spare / capacity), variant.removable, there[variant.index] - is_last) if (
            spare > 0 and capacity > 0) else 0
        if count > 0:
            changes[variant.index] = -count
            there[variant.index] -= count
            spare -= count * capacity
    return changes
