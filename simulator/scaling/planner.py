"""`planner`: as many prefill and decode replicas as the tokens of the last interval need, by profiles.

Source: ai-dynamo/dynamo@0a84cbe4, docs/design_docs/planner_design.md, its formulas with a constant forecast.
"""
import math
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from simulator.domain import records
from simulator.scaling.base import Autoscaler, Observation, spread
from simulator.scaling.profile import DecodePoint, Positive, PrefillPoint, Profile, check_points


class PlannerParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Profiles of the replicas, and the target of the planner."""

    itl_ms: Annotated[Positive, Meta(description="target: time between two tokens of a request")]
    prefill_profile: Annotated[Annotated[tuple[PrefillPoint, ...], Meta(min_length=1)], Meta(description=(
        "profile measured on one prefill replica"))]
    decode_profile: Annotated[Annotated[tuple[DecodePoint, ...], Meta(min_length=1)], Meta(description=(
        "profile measured on one decode replica; each concurrency at each of the contexts"))]
    corrects: Annotated[bool, Meta(description=(
        "scale the profiles by the latencies that requests had; false: use the profiles as they are"))] = True
    max_accelerators: Annotated[Annotated[int, Meta(ge=1, le=2**31 - 1)] | None, Meta(description=(
        "accelerators of all replicas, at most; above it both sides are cut in proportion. Default: the limits of the "
        "pools"))] = None

    def __post_init__(self):
        check_points(self.prefill_profile, self.decode_profile)


class Shape(NamedTuple):
    """Mean lengths of requests; their latencies divided by those of the profiles."""

    isl: float
    osl: float
    prefill_correction: float = 1.0
    decode_correction: float = 1.0

    @property
    def context(self) -> float:
        """Return the mean context of a request that decodes."""
        return self.isl + self.osl / 2


class Planner(Autoscaler):
    """Prefill and decode replicas by the tokens that are to be computed and generated.

    prefill = ceil(requests x isl / interval x min(1, correction_p) / throughput_p(isl) / accelerators)
    decode = ceil(requests x osl / interval / throughput_d(itl / correction_d, isl + osl / 2) / accelerators)

    where isl and osl are mean lengths of the requests that completed in the interval; correction_p is their mean TTFT
    over the profile's, correction_d their mean ITL over that of the profile at the concurrency that they had. The best
    throughput within a bound is that of the largest concurrency; where no profiled one keeps it, that of the smallest.

    After an interval without a completion lengths and corrections are those of the last interval with one; with no
    request anywhere demand is 0, so that pools shrink to their minimum, as with Dynamo's planner of 2026 (pull requests
    9756 and 11624). Where requests are in flight, their answers take longer than an interval: prefill replicas are for
    the requests that arrived meanwhile, or that wait if these are more, and decode replicas for a token of each request
    every `itl_ms`. Before any completion, a request's context is the mean of tokens that decode replicas hold.
    """

    Parameters = PlannerParameters
    wants_finished = True
    needs_roles = True

    def __init__(self, parameters):
        super().__init__(parameters)
        self.profile = Profile(parameters.prefill_profile, parameters.decode_profile)
        self._then_ns = self._were_there = 0
        self._shape = None

    def decide(self, observation):
        """See Autoscaler."""
        interval_s, self._then_ns = (observation.now_ns - self._then_ns) / 1e9, observation.now_ns
        sides = {role: of_role(observation, role) for role in ("prefill", "decode")}
        done = observation.finished[observation.finished["status"] == records.COMPLETED]
        are_there = observation.queued + sum(in_flight(side) for side in sides.values())
        came, self._were_there = max(are_there - self._were_there, 0), are_there
        if interval_s <= 0:
            return {}
        if len(done):
            needed = self._needed(done, interval_s, sides)
        elif are_there:
            to_prefill = max(came, observation.queued + waiting(sides["prefill"]))
            needed = self._needed_in_flight(to_prefill, interval_s, sides)
        else:
            needed = dict.fromkeys(sides, 0)
        needed = self._within_budget(needed, sides)
        changes = {}
        for role, side in sides.items():
            changes |= spread(side, needed[role] - side.serving - side.starting)
        return changes

    def _needed(self, done, interval_s, sides):
        isl, osl = float(done["prompt_tokens"].mean()), float(done["output_tokens"].mean())
        shape, rate = Shape(isl, osl), len(done) / interval_s
        if self.parameters.corrects:
            ttft_ms = float((done["first_token_ns"] - done["arrival_ns"]).mean()) / 1e6
            shape = Shape(isl, osl, ttft_ms / self.profile.ttft_ms(isl),
                          self._decode_correction(done, shape.context, rate, sides["decode"]))
        self._shape = shape
        return {"prefill": self._prefill_replicas(rate, shape, sides["prefill"]),
                "decode": self._decode_replicas(rate * osl, shape, sides["decode"])}

    def _needed_in_flight(self, requests, interval_s, sides):
        """Return the replicas for requests of which none completed; `requests` are to be prefilled."""
        per_s = in_flight(sides["decode"]) * 1e3 / self.parameters.itl_ms
        shape = self._shape or Shape(held_tokens(sides["decode"]), 0.0)
        if shape.context == 0:          # no known lengths: numbers stay
            return {role: max(side.serving + side.starting, 1) for role, side in sides.items()}
        return {"prefill": max(self._prefill_replicas(requests / interval_s, shape, sides["prefill"]), 1),
                "decode": max(self._decode_replicas(per_s, shape, sides["decode"]), 1)}

    def _prefill_replicas(self, rate, shape, side):
        tokens_per_s = rate * shape.isl * min(1.0, shape.prefill_correction)
        return math.ceil(tokens_per_s / self.profile.prefill_tokens_per_s(shape.isl) / _accelerators(side))

    def _decode_replicas(self, tokens_per_s, shape, side):
        most_per_s = self.profile.decode_tokens_per_s(self.parameters.itl_ms / shape.decode_correction, shape.context)
        return math.ceil(tokens_per_s / most_per_s / _accelerators(side))

    def _decode_correction(self, done, context, rate, side):
        """Return the latency of tokens over that of the profile at the actual concurrency."""
        several = done[done["output_tokens"] > 1]
        if len(several) == 0 or side.serving == 0:
            return 1.0
        spans_ns = several["completed_ns"] - several["first_token_ns"]
        itl_ms = float((spans_ns / (several["output_tokens"] - 1)).mean()) / 1e6
        held_s = float((done["completed_ns"] - done["first_token_ns"]).mean()) / 1e9
        return itl_ms / self.profile.expected_itl_ms(rate * held_s / side.serving, context) if itl_ms > 0 else 1.0

    def _within_budget(self, needed, sides):
        """Cut both sides in proportion where they take more accelerators than there may be."""
        most, costs = self.parameters.max_accelerators, {role: _accelerators(side) for role, side in sides.items()}
        total = sum(needed[role] * costs[role] for role in needed)
        if most is None or total <= most:
            return needed
        prefill = max(round(needed["prefill"] * most / total), 1)
        return {"prefill": prefill, "decode": max((most - prefill * costs["prefill"]) // costs["decode"], 1)}


def of_role(observation: Observation, role: str) -> Observation:
    """Return the part of an observation on the pools of one role."""
    variants = tuple(variant for variant in observation.variants if variant.role == role)
    return Observation(observation.now_ns, variants, observation.queued, observation.finished)


def in_flight(side: Observation) -> int:
    """Return the requests that were sent to the replicas of a side and have not left."""
    return int(side.accounts()["in_flight"].sum())


def waiting(side: Observation) -> int:
    """Return the requests that wait at the replicas of a side."""
    return int(side.states()["waiting"].sum())


def held_tokens(side: Observation) -> float:
    """Return the tokens in KV caches for each request that runs; 0: none does."""
    states = side.states()
    running = int(states["running"].sum())
    return float((states["used_blocks"].astype(int) * states["block_size"]).sum() / running) if running else 0.0


def _accelerators(side: Observation) -> int:
    """Return the accelerators of a replica of one side; of pools that differ, of the first."""
    return side.variants[0].accelerators
