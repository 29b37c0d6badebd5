"""Features of an experiment for the rows of `simulator.config.conflicts`; those of parts are with the parts."""
from typing import get_args

from simulator.config.conflicts import Feature, Place
from simulator.domain.experts import All2All
from simulator.domain.vllm_versions import VERSIONS


def backends_without(title: str, attribute: str) -> Feature:
    """Return the feature of a latency backend that lacks a capability."""
    return Feature(f"latency backends without {title}", "latency.backend",
                   value=lambda place: not getattr(place.backend, attribute) and place.latency.backend)


def versions_without(flag: str) -> Feature:
    """Return the feature of a vLLM version that lacks a behaviour."""
    having = tuple(name for name, behaviour in VERSIONS.items() if getattr(behaviour, flag))
    return Feature("versions of vLLM but " + ", ".join(having), "engine.vllm_version", having)


def _graphs(place: Place) -> str | None:
    graphs = getattr(place.engine.parameters, "cuda_graphs", None)
    return graphs and (graphs.mode or "the default")


# [engine]
QUEUED_REQS = Feature("limits of API servers on requests", "engine.max_num_queued_reqs")
QUEUED_TOKENS = Feature("limits of API servers on prompt tokens", "engine.max_num_queued_tokens")
INTERVAL = Feature("intervals between prompts", "engine.prefill_schedule_interval", 1)
RECV_INTERVAL = Feature("passes of SGLang that read no requests", "engine.scheduler_recv_interval", 1)
BATCH_WAIT = Feature("prompts of TensorRT-LLM that wait for others", "engine.batch_wait_timeout_iters", 0)

# [topology]
PIPELINE = Feature("pipeline stages", "topology.pipeline_parallel", 1)
RANKS = Feature("data-parallel ranks", "topology.data_parallel", 1)
SHARED_CONTEXT = Feature("decode context parallelism", "topology.decode_context_parallel", 1)
DIVIDED_PROMPTS = Feature("prefill context parallelism", "topology.prefill_context_parallel", 1)
INTERLEAVE = Feature("interleaving of shared contexts", "topology.cp_kv_cache_interleave_size", 1)
COMBINING = Feature("exchange of attention outputs", "topology.dcp_comm_backend", "ag_rs")
NODE = Feature("nodes by name", "topology.node")

# [engine]
SCHEDULER = Feature("schedulers", "engine.scheduler", value=lambda place: place.engine.scheduler)
ASYNC = Feature("asynchronous scheduling", "engine.async_scheduling", False, value=lambda place: place.facts.is_async)
POOLING = Feature("pooling", "engine.task", "generate")
STRUCTURED = Feature("structured outputs", "engine.structured_outputs")
SGLANG_GRAMMARS = Feature("structured outputs of SGLang", "engine.structured_outputs", value=lambda place: (
    place.engine.scheduler == "sglang" and place.engine.parameters.structured_outputs))
ENCODER = Feature("encoders of images in the engine", "engine.encoder")
GRAPHS = Feature("CUDA graphs", "engine.cuda_graphs.mode", "none", value=_graphs)
WINDOWS = Feature("windows in engine.kv_cache_groups", "engine.kv_cache_groups[].kind",
                  ("full_attention", "linear_attention"))
STATES = Feature("recurrent states in engine.kv_cache_groups", "engine.kv_cache_groups[].kind",
                 ("full_attention", "sliding_attention", "chunked_attention"))
LAYER_GROUPS = Feature("layers of several kinds", "engine.kv_cache_groups", phrase="layers of several kinds",
                       value=lambda place: place.layer_groups)
UNIT = Feature("hits inside blocks", "engine.prefix_match_unit")
UNCACHED = Feature("no prefix caching", "engine.enable_prefix_caching", True)

# [latency]
BACKEND = Feature("latency backends", "latency.backend", value=lambda place: place.latency.backend)
UNPRICED_CONTEXT = backends_without("prices of contexts", "prices_context_parallel")
ALL2ALL = Feature("all-to-all libraries of a backend", "latency.all2all_backend", get_args(All2All)[0])

# [[pools]] and [cluster]
ROLES = Feature("pools for prefill and decode", "pools", phrase='pools of role "prefill" or "decode"',
                value=lambda place: any(pool.role != "both" for pool in place.pools))
WHOLE_POOL = Feature("pools for whole requests", "role", ("prefill", "decode"),
                     value=lambda place: place.role if place.path else None)
WHOLE_BESIDE = Feature("pools for whole requests beside pools for prefill or decode", "pools",
                       phrase='a pool of role "both"', value=lambda place: (
                           len({pool.role == "both" for pool in place.pools}) == 2))
SPLIT_WISE = Feature('router "split_wise"', "cluster.routing.policy", value=lambda place: (
    place.cluster.routing.policy == "split_wise" and "split_wise"))
