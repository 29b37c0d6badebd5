"""The features of an experiment, each named once for the rows of `simulator.config.conflicts`."""
from typing import get_args

from simulator import registry
from simulator.config.conflicts import Feature, Place
from simulator.domain.data_parallel import DataParallel
from simulator.domain.experts import All2All
from simulator.domain.vllm_versions import VERSIONS


def protocol_of(place: Place) -> type:
    """Return the protocol of a pool's KV tiers."""
    return registry.load("kv_tier", place.kv_tiers.protocol)


def ranks_of(place: Place) -> DataParallel:
    """Return the settings of a pool's data-parallel ranks."""
    return place.engine.data_parallel or DataParallel()


def moves_of(place: Place):
    """Return [kv_transfer] if some pool is for prefill or decode, else None."""
    return place.kv_transfer if any(pool.role != "both" for pool in place.pools) else None


def backends_without(title: str, attribute: str) -> Feature:
    """Return the feature of a latency backend that lacks a capability."""
    return Feature(f"latency backends without {title}", "latency.backend",
                   value=lambda place: not getattr(place.backend, attribute) and place.latency.backend)


def versions_without(flag: str) -> Feature:
    """Return the feature of a vLLM version that lacks a behaviour."""
    having = tuple(name for name, behaviour in VERSIONS.items() if getattr(behaviour, flag))
    return Feature("versions of vLLM but " + ", ".join(having), "engine.vllm_version", having)


def protocols(title: str, uses) -> Feature:
    """Return the feature of KV transfer by certain protocols.

    uses : Habits -> whether a protocol is one.
    """
    return Feature(title, "kv_transfer.protocol", value=lambda place: (
        (moves := moves_of(place)) and uses(moves.habits) and moves.protocol))


def _graphs(place: Place) -> str | None:
    graphs = getattr(place.engine.parameters, "cuda_graphs", None)
    return graphs and (graphs.mode or "the default")


def _adaptive(place: Place) -> bool | None:
    routing = place.cluster.routing
    return moves_of(place) and getattr(routing.parameters, "enable_adaptive_pd", None)


# [engine]
INTERVAL = Feature("intervals between prompts", "engine.prefill_schedule_interval", 1)

# [topology]
PIPELINE = Feature("pipeline stages", "topology.pipeline_parallel", 1)
RANKS = Feature("data-parallel ranks", "topology.data_parallel", 1)
LOCK_STEP = Feature("data-parallel ranks in lock step", "topology.data_parallel", 1, phrase="ranks in lock step",
                    value=lambda place: place.is_in_lock_step and place.topology.data_parallel)
LOCK_STEP_TRANSFER = Feature("KV transfer with ranks in lock step", "topology.data_parallel", 1,
                             phrase="[kv_transfer] and ranks in lock step", value=lambda place: (
                                 place.is_in_lock_step and moves_of(place) and place.topology.data_parallel))
SHARED_CONTEXT = Feature("decode context parallelism", "topology.decode_context_parallel", 1)
DIVIDED_PROMPTS = Feature("prefill context parallelism", "topology.prefill_context_parallel", 1)
INTERLEAVE = Feature("interleaving of shared contexts", "topology.cp_kv_cache_interleave_size", 1)
COMBINING = Feature("exchange of attention outputs", "topology.dcp_comm_backend", "ag_rs")
NODE = Feature("nodes by name", "topology.node")

# [engine]
SCHEDULER = Feature("schedulers", "engine.scheduler", value=lambda place: place.engine.scheduler)
ASYNC = Feature("asynchronous scheduling", "engine.async_scheduling", False, value=lambda place: place.facts.is_async)
DRAFTS = Feature("drafts", "engine.speculative")
DRAFT_MODEL = Feature("draft models", "engine.speculative.model", value=lambda place: (
    (drafts := getattr(place.engine.parameters, "speculative", None)) and (drafts.model or drafts.config)))
LEGACY_HASHES = Feature("hashes of blocks without the token behind",
                        "engine.speculative.disable_lookahead_block_hashes", False)
LORA = Feature("LoRA adapters", "engine.lora")
POOLING = Feature("pooling", "engine.task", "generate")
STRUCTURED = Feature("structured outputs", "engine.structured_outputs")
ENCODER = Feature("encoders of images in the engine", "engine.encoder")
GRAPHS = Feature("CUDA graphs", "engine.cuda_graphs.mode", "none", value=_graphs)
WINDOWS = Feature("windows in engine.kv_cache_groups", "engine.kv_cache_groups[].kind",
                  ("full_attention", "linear_attention"))
STATES = Feature("recurrent states in engine.kv_cache_groups", "engine.kv_cache_groups[].kind",
                 ("full_attention", "sliding_attention", "chunked_attention"))
LAYER_GROUPS = Feature("layers of several kinds", "engine.kv_cache_groups", phrase="layers of several kinds",
                       value=lambda place: place.layer_groups)
MOVED_GROUPS = Feature("KV transfer of layers of several kinds", "engine.kv_cache_groups",
                       phrase="layers of several kinds and [kv_transfer]", value=lambda place: (
                           moves_of(place) and place.layer_groups))
UNIT = Feature("hits inside blocks", "engine.prefix_match_unit")
UNCACHED = Feature("no prefix caching", "engine.enable_prefix_caching", True)
EXPERTS = Feature("placement and load of experts", "engine.experts")
SHIFTS = Feature("loads of experts that change", "engine.experts", phrase="eplb or popularity.drift_steps",
                 value=lambda place: (experts := place.engine.experts) and experts.changes and experts)

# [latency]
UNPRICED_CONTEXT = backends_without("prices of contexts", "prices_context_parallel")
ALL2ALL = Feature("all-to-all libraries of a backend", "latency.all2all_backend", get_args(All2All)[0])

# [kv_tiers]
KV_TIERS = Feature("KV tiers", "kv_tiers")
VLLM_TIERS = Feature("KV tiers of vLLM", "kv_tiers", value=lambda place: (
    place.engine.scheduler == "vllm" and place.kv_tiers))
TIER_PROTOCOL = Feature("protocols of KV tiers", "kv_tiers.protocol",
                        value=lambda place: place.kv_tiers and place.kv_tiers.protocol)

# [[pools]] and [kv_transfer]
ROLES = Feature("pools for prefill and decode", "pools", phrase='pools of role "prefill" or "decode"',
                value=lambda place: any(pool.role != "both" for pool in place.pools))
WHOLE_POOL = Feature("pools for whole requests", "role", ("prefill", "decode"),
                     value=lambda place: place.role if place.path else None)
WHOLE_BESIDE = Feature("pools for whole requests beside pools for prefill or decode", "pools",
                       phrase='a pool of role "both"', value=lambda place: (
                           len({pool.role == "both" for pool in place.pools}) == 2))
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

# [cluster], [[failures]], [autoscaling]
MOVES = Feature("rescheduling", "cluster.rescheduling")
COPIED_MOVES = Feature("rescheduling that copies KV", "cluster.rescheduling.mode", "recompute")
SPLIT_WISE = Feature('router "split_wise"', "cluster.routing.policy", value=lambda place: (
    place.cluster.routing.policy == "split_wise" and "split_wise"))
ADAPTIVE = Feature("Llumnix's adaptive choice", "cluster.routing.enable_adaptive_pd", False, value=_adaptive)
DISAGGREGATION = Feature("choice of the requests to split", "cluster.disaggregation")
DECIDER = Feature("deciders", "cluster.disaggregation.decider", "always")
PREFILL_FIRST = Feature("decode replicas chosen after the prompt", "cluster.disaggregation.stage_order", "decode_first")
FAILURES = Feature("failures", "failures")
SLOW = Feature("replicas that slow down", "failures[].kind", ("stop", "link"))
AUTOSCALING = Feature("autoscaling", "autoscaling")
