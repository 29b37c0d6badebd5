"""Schedulers, latency backends, experts, drafts and failures: rows of the table of conflicts."""
from simulator.config import features as has
from simulator.config.conflicts import Agreement, Conflict, Feature, Place, without

GATHER = has.ALL2ALL.off
# Keys of latency backends with the meaning of engine.experts.all2all_backend, and their values for it.
ALL2ALL_WORDS = {"all2all_backend": {}, "expert_exchange": {
    GATHER: "all_gather", "deepep_high_throughput": "all_to_all", "deepep_low_latency": "all_to_all"}}
OF_ALL_ELSE = 'it does not price the exchange of tokens separately, as "roofline" and "operators" do'
WHY_NOT = {
    ("aicb", "all2all_backend"): "it reads the bytes of the exchange from its tables, and latency.expert_exchange is "
                                 "their link",
    ("aicb", "dbo"): "it has tables of whole batches, without times of half batches",
    ("trained_physics", "dbo"): "it has coefficients fitted to iterations without overlap",
}
BOTH_CHANGE = "both change the duration of iterations of a replica"
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


def _unpriced_draft(place: Place) -> str:
    drafts = place.engine.parameters.speculative
    return "" if drafts.has_price or place.backend.prices_any_model else (
        "it has no prices of another model: expected drafter_share or drafter_forward_us beside it, or one of the "
        'backends "roofline", "operators" and "step_roofline"')


BACKEND = Feature("latency backends", "latency.backend", value=lambda place: place.latency.backend)
UNCERTAINTY = Feature("intervals of uncertainty", "latency.uncertainty", False)
OF_UNCERTAINTY = ("latency.uncertainty_replications", "latency.uncertainty_share")
EXCHANGE = Feature("all-to-all backends of experts", "engine.experts.all2all_backend")
DBO = Feature("overlap of half batches", "engine.experts.dbo.enabled", False)
EPLB = Feature("balancing of experts", "engine.experts.eplb")
ROUND_ROBIN = Feature("experts placed by turns", "engine.experts.placement", "linear")
EXPERT_RANKS = Feature("expert parallelism", "topology.expert_parallel", 1)
GATHERED = Feature("the exchange by gathers", "engine.experts.all2all_backend", value=lambda place: (
    _exchange(place) == GATHER and GATHER))
CONFLICTS = (
    Conflict(has.POOLING, has.DRAFTS, "pooling has no output, and drafts would be of none"),
    Conflict(has.POOLING, has.STRUCTURED, "pooling has no output that a grammar could restrict"),
    Conflict(has.POOLING, has.ROLES, "pooling has no output, and no decode that could be elsewhere"),
    Conflict(has.INTERVAL, has.versions_without("holds_prompts_alone"),
             "it has them for data-parallel ranks alone, in [engine.data_parallel]"),
    Conflict(has.INTERVAL, has.LOCK_STEP,
             "vLLM counts the common steps of the ranks: give engine.data_parallel.prefill_schedule_interval"),
    Conflict(has.PIPELINE, has.SCHEDULER, lambda place: "" if place.facts.takes_stages else "it supports no stages",
             "some schedulers support no stages"),
    Conflict(has.ASYNC, has.PIPELINE, lambda place: place.facts.why_no_async_stages * place.facts.takes_stages,
             "vLLM 0.10 refuses it with them"),
    Conflict(UNCERTAINTY, has.backends_without("known errors", "knows_errors"), "its times are given or fitted, with "
             'unknown errors of operators; "forest", "operators" and "roofline" know errors'),
    *(Conflict(Feature("settings of intervals", key), without(UNCERTAINTY), "there are no intervals")
      for key in OF_UNCERTAINTY),
    Agreement((UNCERTAINTY.key, *OF_UNCERTAINTY), lambda one, two: "all pools of a run vary together",
              "all pools", "all pools of a run vary together"),
    Conflict(Feature("collective models", "latency.collective"),
             has.backends_without("collectives", "takes_collective"), "it has no collectives to replace"),
    Conflict(Feature("sizes of CUDA graphs", "engine.cuda_graphs"),
             has.backends_without("prices of padded batches", "takes_padding"),
             'it cannot price padded batches: "linear", "roofline" and "operators" can'),
    Conflict(has.EXPERTS, Feature(
        "latency backends without prices of experts", "latency.backend",
        value=lambda place: place.backend.takes_experts is None and place.latency.backend),
        'it does not price experts separately: "roofline", "operators", "trained_physics" and "aicb" do'),
    Conflict(EXCHANGE, BACKEND, _unpriced("all2all_backend"), OF_ALL_ELSE),
    Conflict(DBO, BACKEND, _unpriced("dbo"), OF_ALL_ELSE),
    Conflict(Feature("a load of experts by [latency]", "latency.expert_load", "balanced"), has.EXPERTS,
             "it distributes tokens over experts"),
    *(Conflict(Feature("another exchange of experts by [latency]", f"latency.{key}", _meant(words)), EXCHANGE,
               "one exchange is priced") for key, words in ALL2ALL_WORDS.items()),
    Conflict(EXCHANGE, without(has.RANKS), lambda place: (
        "ranks that divide prompts gather and scatter" if place.topology.prefill_context_parallel > 1 else NO_EXCHANGE),
        NO_EXCHANGE),
    Conflict(DBO, without(has.RANKS), "there is no exchange of tokens to hide"),
    Conflict(DBO, has.PIPELINE, "the overlap of half batches with stages is not settled"),
    Conflict(DBO, GATHERED, 'vLLM splits batches with "deepep_high_throughput" and "deepep_low_latency" alone'),
    Conflict(EPLB, without(EXPERT_RANKS), WHOLE_EXPERTS),
    Conflict(ROUND_ROBIN, without(EXPERT_RANKS), WHOLE_EXPERTS),
    Conflict(ROUND_ROBIN, EPLB, "as vLLM has it then"),
    Conflict(has.SLOW, has.SHIFTS, BOTH_CHANGE),
    Conflict(has.DRAFT_MODEL, has.SHARED_CONTEXT, "sharing of a draft model's KV is not supported"),
    Conflict(has.DRAFT_MODEL, BACKEND, _unpriced_draft, "a backend has no prices of another model"),
    Conflict(Feature("requests that leave a slow replica", "failures[].on_failure", ("retry", "restart", "lost")),
             without(has.MOVES), "it moves requests"),
    Conflict(Feature("requests that leave a removed replica", "autoscaling.drain", "finish"), without(has.MOVES),
             "it moves requests"),
)
