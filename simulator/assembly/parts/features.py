"""Features of parts, each named once for the rows of their conflicts; `config.features` has those of other keys."""
from simulator import registry
from simulator.config.conflicts import Feature, Place
from simulator.domain.data_parallel import DataParallel


def protocol_of(place: Place) -> type:
    """Return the protocol of a pool's KV tiers."""
    return registry.load("kv_tier", place.kv_tiers.protocol)


def ranks_of(place: Place) -> DataParallel:
    """Return the settings of a pool's data-parallel ranks."""
    return place.engine.data_parallel or DataParallel()


def moves_of(place: Place):
    """Return [kv_transfer] if some pool is for prefill or decode, else None."""
    return place.kv_transfer if any(pool.role != "both" for pool in place.pools) else None


def protocols(title: str, uses) -> Feature:
    """Return the feature of KV transfer by certain protocols.

    uses : Habits -> whether a protocol is one.
    """
    return Feature(title, "kv_transfer.protocol", value=lambda place: (
        (moves := moves_of(place)) and uses(moves.habits) and moves.protocol))


def kv_of(model) -> str:
    """Return as text the facts that determine the layout of a model's KV blocks."""
    return "none" if model is None else f"{model.name or model.config} with kv_cache_dtype {model.kv_cache_dtype}"


def _adaptive(place: Place) -> bool | None:
    routing = place.cluster.routing
    return moves_of(place) and getattr(routing.parameters, "enable_adaptive_pd", None)


# KV that replicas exchange unchanged
BLOCKS = {"engine.block_size": lambda place: place.engine.block_size, "model": lambda place: kv_of(place.model)}
UNMOVED_RANKS = "transfer of KV between such ranks is not supported"

# [engine.data_parallel]
LOCK_STEP = Feature("data-parallel ranks in lock step", "topology.data_parallel", 1, phrase="ranks in lock step",
                    value=lambda place: place.is_in_lock_step and place.topology.data_parallel)
LOCK_STEP_TRANSFER = Feature("KV transfer with ranks in lock step", "topology.data_parallel", 1,
                             phrase="[kv_transfer] and ranks in lock step", value=lambda place: (
                                 place.is_in_lock_step and moves_of(place) and place.topology.data_parallel))

# [engine.experts]
EXPERTS = Feature("placement and load of experts", "engine.experts")
SHIFTS = Feature("loads of experts that change", "engine.experts", phrase="eplb or popularity.drift_steps",
                 value=lambda place: (experts := place.engine.experts) and experts.changes and experts)

# [kv_tiers]
KV_TIERS = Feature("KV tiers", "kv_tiers")
VLLM_TIERS = Feature("KV tiers of vLLM", "kv_tiers", value=lambda place: (
    place.engine.scheduler == "vllm" and place.kv_tiers))
TIER_PROTOCOL = Feature("protocols of KV tiers", "kv_tiers.protocol",
                        value=lambda place: place.kv_tiers and place.kv_tiers.protocol)

# [kv_transfer] and [cluster.disaggregation]
KV_TRANSFER = Feature("KV transfer", "kv_transfer")
NOT_NIXL = protocols('protocols of KV transfer but "nixl"', lambda habits: True)._replace(off="nixl")
NOT_READ = protocols('protocols of KV transfer but "nixl" and "nixl_push"', lambda habits: True)._replace(
    off=("nixl", "nixl_push"))
UNASKED = protocols("protocols of KV transfer that send KV unasked", lambda habits: habits.place != "asked")
RESERVING = protocols("protocols of KV transfer into reserved blocks", lambda habits: habits.place == "reserved")
UNRESERVING = protocols("protocols of KV transfer without reserved blocks", lambda habits: habits.place != "reserved")
PROTOCOL = protocols("protocols of KV transfer", lambda habits: True)
NOTICED_AT = Feature("the instant at which KV is noticed", "kv_transfer.noticed_at")
NOTICED_AT_END = Feature("KV noticed at the end of an iteration", "kv_transfer.noticed_at", "start")
NOTICED_AT_START = Feature("KV noticed at the start of an iteration", "kv_transfer.noticed_at", "end")
MOVED_GROUPS = Feature("KV transfer of layers of several kinds", "engine.kv_cache_groups",
                       phrase="layers of several kinds and [kv_transfer]", value=lambda place: (
                           moves_of(place) and place.layer_groups))
ADAPTIVE = Feature("Llumnix's adaptive choice", "cluster.routing.enable_adaptive_pd", False, value=_adaptive)
DISAGGREGATION = Feature("choice of the requests to split", "cluster.disaggregation")
DECIDER = Feature("deciders", "cluster.disaggregation.decider", "always")
PREFILL_FIRST = Feature("decode replicas chosen after the prompt", "cluster.disaggregation.stage_order", "decode_first")

# [cluster.rescheduling], [[failures]], [autoscaling]
MOVES = Feature("rescheduling", "cluster.rescheduling")
COPIED_MOVES = Feature("rescheduling that copies KV", "cluster.rescheduling.mode", "recompute")
FAILURES = Feature("failures", "failures")
SLOW = Feature("replicas that slow down", "failures[].kind", ("stop", "link", "cache"))
AUTOSCALING = Feature("autoscaling", "autoscaling")
