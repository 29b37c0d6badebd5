"""Experts of a mixture, [engine.experts], and the changes of their load during a run."""
import math
from functools import partial
from typing import Annotated

from msgspec import Meta

from simulator.assembly.experts import ALL2ALL_WORDS
from simulator.assembly.latency import latency_model
from simulator.assembly.parts import features as used
from simulator.assembly.parts.base import Part
from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature, Place, without
from simulator.domain.experts import Experts
from simulator.domain.server_defaults.vllm import THROUGHPUT_EXCHANGE, drops_graphs
from simulator.errors import InputErrors, KeyFault
from simulator.experts.timeline import ExpertTimeline
from simulator.experts.traffic import GATHER

OF_ALL_ELSE = 'it does not price the exchange of tokens separately, as "roofline" and "operators" do'
WHY_NOT = {
    ("aicb", "all2all_backend"): "it reads the bytes of the exchange from its tables, and latency.expert_exchange is "
                                 "their link",
    ("aicb", "dbo"): "it has tables of whole batches, without times of half batches",
    ("trained_physics", "dbo"): "it has coefficients fitted to iterations without overlap",
}
NO_EXCHANGE = "only data-parallel ranks exchange tokens for their experts"
WHOLE_EXPERTS = "every rank holds a part of every expert"


def _unpriced(key: str):
    """Return place -> reason for which a backend does not price a key of [engine.experts]."""
    def why(place: Place) -> str:
        priced = place.backend.takes_experts
        return "" if priced is None or key in priced else WHY_NOT.get((place.latency.backend, key), OF_ALL_ELSE)

    return why


def _meant(words: dict[str, str]):
    """Return place -> the exchange of [engine.experts] in the words of a backend."""
    def meant(place: Place) -> str | None:
        exchange = place.engine.experts and place.engine.experts.all2all_backend
        return words.get(exchange, exchange)

    return meant


def _exchange(place: Place) -> str | None:
    experts = place.engine.experts
    return experts and (experts.all2all_backend or getattr(place.latency.parameters, "all2all_backend", None) or GATHER)


EXCHANGE = Feature("all-to-all backends of experts", "engine.experts.all2all_backend")
DBO = Feature("overlap of half batches", "engine.experts.dbo.enabled", False)
EPLB = Feature("balancing of experts", "engine.experts.eplb")
ROUND_ROBIN = Feature("experts placed by turns", "engine.experts.placement", "linear")
EXPERT_RANKS = Feature("expert parallelism", "topology.expert_parallel", 1)
GATHERED = Feature("the exchange by gathers", "engine.experts.all2all_backend", value=lambda place: (
    _exchange(place) == GATHER and GATHER))
THROUGHPUT = Feature("DeepEP's kernels for throughput with data parallelism", "engine.experts.all2all_backend",
                     value=lambda place: drops_graphs(
                         place.engine.experts and place.engine.experts.all2all_backend, place.topology.data_parallel,
                         place.is_in_lock_step) and THROUGHPUT_EXCHANGE)


class ExpertShifts(Part):
    """Experts, of which the popularity drifts, or which a balancer moves and copies."""

    keys = {"engine.experts": Annotated[Experts | None, Meta(description=(
        "placement, choice and dispatch of a mixture's experts; absent: evenly loaded, one copy of each"))]}
    conflicts = (
        Conflict(used.EXPERTS, Feature(
            "latency backends without prices of experts", "latency.backend",
            value=lambda place: place.backend.takes_experts is None and place.latency.backend),
            'it does not price experts separately: "roofline", "operators", "trained_physics" and "aicb" do'),
        Conflict(EXCHANGE, has.BACKEND, _unpriced("all2all_backend"), OF_ALL_ELSE),
        Conflict(DBO, has.BACKEND, _unpriced("dbo"), OF_ALL_ELSE),
        Conflict(Feature("a load of experts by [latency]", "latency.expert_load", "balanced"), used.EXPERTS,
                 "it distributes tokens over experts"),
        *(Conflict(Feature("another exchange of experts by [latency]", f"latency.{key}", _meant(words)), EXCHANGE,
                   "one exchange is priced") for key, words in ALL2ALL_WORDS.items()),
        Conflict(EXCHANGE, without(has.RANKS), lambda place: (
            "ranks that divide prompts gather and scatter" if place.topology.prefill_context_parallel > 1
            else NO_EXCHANGE), NO_EXCHANGE),
        Conflict(DBO, without(has.RANKS), "there is no exchange of tokens to hide"),
        Conflict(DBO, has.PIPELINE, "the overlap of half batches with stages is not settled"),
        Conflict(DBO, GATHERED, 'vLLM splits batches with "deepep_high_throughput" and "deepep_low_latency" alone'),
        Conflict(has.GRAPHS, THROUGHPUT, "vLLM turns graphs off: DeepEP's kernels for throughput do not fit into them"),
        Conflict(EPLB, without(EXPERT_RANKS), WHOLE_EXPERTS),
        Conflict(ROUND_ROBIN, without(EXPERT_RANKS), WHOLE_EXPERTS),
        Conflict(ROUND_ROBIN, EPLB, "as vLLM has it then"),
        Conflict(used.SLOW, used.SHIFTS, "both change the duration of iterations of a replica"),
    )
    shifts = ()

    def meet(self, prepared) -> None:
        self.shifts = tuple(site.named(partial(_shift, self.experiment, site, partial(
            latency_model, site, prepared.readings))) for site in prepared.sites)

    def operations(self, sink) -> tuple:
        if not any(self.shifts):
            return ()
        from simulator.engine.operations import expert_shifts

        return (partial(expert_shifts.ExpertShifts, shifts=self.shifts),)


def _shift(experiment, site, make):
    """Return the ShiftPlan of a pool's expert loads; None: they are constant.

    make : arrangement -> LatencyModel.
    """
    experts = site.pool.engine.experts
    if experts is None or not experts.changes:
        return None
    from simulator.engine.operations.shift_plan import ShiftPlan  # imported only when needed
    from simulator.latency.roofline.costs import link_bytes_per_s

    timeline = ExpertTimeline(site.deployment)
    try:
        link = link_bytes_per_s(site.deployment, site.deployment.parallelism.expert_ranks)
    except ValueError as error:
        link = 0.0
        if experts.eplb is not None:
            raise InputErrors([KeyFault(f"engine.experts: eplb moves weights between accelerators: {error}")]) from None
    return ShiftPlan(
        timeline, make, lambda number: math.ceil(timeline.moved_bytes(number) / link * 1e9),
        experts.eplb is not None and experts.eplb.use_async)
