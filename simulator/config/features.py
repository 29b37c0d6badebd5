"""The features of an experiment, each named once for the rows of `simulator.config.conflicts`."""
from typing import get_args

from simulator import registry
from simulator.config.conflicts import Feature, Place
from simulator.domain.experts import All2All


def backend_of(place: Place) -> type:
    """Return the latency backend of a pool."""
    return registry.load("latency", place.latency.backend)


def _graphs(place: Place) -> str | None:
    graphs = getattr(place.engine.parameters, "cuda_graphs", None)
    return graphs and (graphs.mode or "the default")


KV_TIERS = Feature("KV tiers", "kv_tiers")
PIPELINE = Feature("pipeline stages", "topology.pipeline_parallel", 1)
RANKS = Feature("data-parallel ranks", "topology.data_parallel", 1)
SHARED_CONTEXT = Feature("decode context parallelism", "topology.decode_context_parallel", 1)
DIVIDED_PROMPTS = Feature("prefill context parallelism", "topology.prefill_context_parallel", 1)
UNPRICED_CONTEXT = Feature(
    "latency backends without prices of contexts", "latency.backend",
    value=lambda place: not backend_of(place).prices_context_parallel and place.latency.backend)
ALL2ALL = Feature("all-to-all backends of experts", "latency.all2all_backend", get_args(All2All)[0])
GRAPHS = Feature("CUDA graphs", "engine.cuda_graphs.mode", "none", value=_graphs)
INTERLEAVE = Feature("interleaving of shared contexts", "topology.cp_kv_cache_interleave_size", 1)
COMBINING = Feature("exchange of attention outputs", "topology.dcp_comm_backend", "ag_rs")
DRAFTS = Feature("drafts", "engine.speculative")
LORA = Feature("LoRA adapters", "engine.lora")
ENCODER = Feature("encoders of images in the engine", "engine.encoder")
WINDOWS = Feature("windows in engine.kv_cache_groups", "engine.kv_cache_groups[].kind",
                  ("full_attention", "linear_attention"))
STATES = Feature("recurrent states in engine.kv_cache_groups", "engine.kv_cache_groups[].kind",
                 ("full_attention", "sliding_attention", "chunked_attention"))

KV_TRANSFER = Feature("KV transfer", "kv_transfer")
COPIED_MOVES = Feature("rescheduling that copies KV", "cluster.rescheduling.mode", "recompute")
