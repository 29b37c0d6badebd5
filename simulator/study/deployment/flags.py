"""The keys of a pool as flags of `vllm serve`.

Names are ours with dashes, except those below. Source: vLLM 0.32.0 and 0.10.1, vllm/engine/arg_utils.py.
"""
import json
from typing import NamedTuple

from simulator.assembly.site import Site
from simulator.config.experiment import Pool
from simulator.domain.vllm_versions import FLAGS, behaviour_of

HASH_KEYS = ("disable_eagle_block_drop", "disable_lookahead_block_hashes")     # of [engine.speculative]
NUMBERS = {         # key -> flag that takes its value
    "topology.tensor_parallel": "--tensor-parallel-size",
    "topology.pipeline_parallel": "--pipeline-parallel-size",
    "topology.data_parallel": "--data-parallel-size",
    "topology.decode_context_parallel": "--decode-context-parallel-size",
    "topology.prefill_context_parallel": "--prefill-context-parallel-size",
    "topology.cp_kv_cache_interleave_size": "--cp-kv-cache-interleave-size",
    "topology.dcp_comm_backend": "--dcp-comm-backend",
    "engine.max_num_seqs": "--max-num-seqs",
    "engine.max_num_batched_tokens": "--max-num-batched-tokens",
    "engine.max_num_scheduled_tokens": "--max-num-scheduled-tokens",
    "engine.max_num_active_seqs": "--max-num-active-seqs",
    "engine.max_num_queued_reqs": "--max-num-queued-reqs",
    "engine.max_num_queued_tokens": "--max-num-queued-tokens",
    "engine.block_size": "--block-size",
    "engine.prefix_match_unit": "--prefix-match-unit",
    "engine.gpu_memory_utilization": "--gpu-memory-utilization",
    "engine.kv_cache_memory_bytes": "--kv-cache-memory-bytes",
    "engine.num_gpu_blocks": "--num-gpu-blocks-override",
    "engine.long_prefill_token_threshold": "--long-prefill-token-threshold",
    "engine.prefill_schedule_interval": "--prefill-schedule-interval",
    "engine.policy": "--scheduling-policy",
    "engine.task": "--runner",
    "engine.watermark": "--watermark",
    "engine.experts.all2all_backend": "--all2all-backend",
    "engine.lora.max_loras": "--max-loras",
    "engine.lora.max_cpu_loras": "--max-cpu-loras",
    "engine.lora.rank": "--max-lora-rank",
    "model.kv_cache_dtype": "--kv-cache-dtype",
}
SWITCHES = {        # key -> flag for true; --no-... for false
    "engine.enable_prefix_caching": "--enable-prefix-caching",
    "engine.enable_chunked_prefill": "--enable-chunked-prefill",
    "engine.async_scheduling": "--async-scheduling",
    "engine.scheduler_reserve_full_isl": "--scheduler-reserve-full-isl",
    "engine.long_prefill_token_threshold_adaptive": "--long-prefill-token-threshold-adaptive",
    "engine.disable_hybrid_kv_cache_manager": "--disable-hybrid-kv-cache-manager",
}
KINDS_OF_ITEMS = ("image", "video")     # of --limit-mm-per-prompt
SWITCHES_OF_ENCODERS = {"engine.language_model_only": "--language-model-only",
                        "engine.skip_mm_profiling": "--skip-mm-profiling"}
# Always written: vLLM derives them from the machine, the model or its use, and the derivation may change.
ALWAYS = ("topology.tensor_parallel", "topology.pipeline_parallel", "engine.max_num_seqs",
          "engine.max_num_batched_tokens", "engine.block_size",
          "engine.gpu_memory_utilization", "engine.policy", "model.kv_cache_dtype",
          "engine.enable_prefix_caching", "engine.enable_chunked_prefill", "engine.async_scheduling")
FLOATS = ("bfloat16", "float16", "float32")
GRAPH_MODES = {"piecewise": "PIECEWISE", "full": "FULL", "full_decode_only": "FULL_DECODE_ONLY",
               "full_and_piecewise": "FULL_AND_PIECEWISE"}


# Keys of [kv_tiers] under vLLM's names for its OffloadingConnector, with the values that both have by default.
# Source: vLLM 0.33.0, vllm/v1/kv_offload/{base,cpu/spec}.py, offloading/{config,scheduler}.py.
OF_CONNECTOR = {"blocks_per_chunk": 1, "eviction_policy": "lru", "store_threshold": 0, "offload_prompt_only": True,
                "sync_load_budget_bytes": 0}


class Flags(NamedTuple):
    """A server's flags, and the keys that they express.

    arguments : flag and value in order, None: a flag without a value. said : keys of the pool.
    """

    arguments: list[tuple[str, str | None]]
    said: set[str]


def flags_of(pool: Pool, values: dict, site: Site) -> Flags:
    """Return the flags of one pool's servers.

    Parameters
    ----------
    values : key of the pool -> its value, if not the default.
    site : the pool's machine and memory; its longest text is written even where it is the model's own.
    """
    absent = FLAGS - behaviour_of(pool.engine.parameters.vllm_version).flags
    flags = Flags([], {"engine.scheduler", "engine.vllm_version"})
    known = {key: _value(pool, key) for key in ALWAYS} | values
    for key, flag in NUMBERS.items():
        if known.get(key) is not None and key not in absent:
            _say(flags, key, flag, _text(known[key]))
    _say(flags, "engine.max_model_len", "--max-model-len", str(site.max_model_len))
    for key, flag in SWITCHES.items():
        if known.get(key) is not None and key not in absent:
            _say(flags, key, flag if known[key] else f"--no-{flag[2:]}")
    for key, flag in SWITCHES_OF_ENCODERS.items():
        if values.get(key) and key not in absent:
            _say(flags, key, flag)
    if pool.topology.expert_parallel > 1:
        _say(flags, "topology.expert_parallel", "--enable-expert-parallel")
    if pool.engine.parameters.lora is not None:
        flags.arguments.append(("--enable-lora", None))
    _say_weights(flags, pool, site)
    _say_tables(flags, pool, site)
    _say_tier(flags, pool)
    _say_ranks(flags, pool, absent)
    if pool.engine.data_parallel is not None and pool.engine.data_parallel.load_balancing == "hybrid":
        _say(flags, "engine.data_parallel.load_balancing", "--data-parallel-hybrid-lb")
    return flags


def _say(flags: Flags, key: str, flag: str, value: str | None = None) -> None:
    flags.arguments.append((flag, value))
    flags.said.add(key)


def _value(pool: Pool, key: str):
    table, _, name = key.partition(".")
    struct = getattr(pool, table)
    if struct is None:
        return None
    return getattr(struct, name) if name in struct.__struct_fields__ else getattr(struct.parameters, name)


def _text(value) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _say_weights(flags: Flags, pool: Pool, site: Site) -> None:
    """Name the format of the weights where vLLM has a flag for it: a float type, or fp8 made at loading."""
    dtype = pool.model.dtype
    stored = site.deployment.model.quantization
    if dtype is None or (stored is not None and stored.is_format(dtype)):
        flags.said.add("model.dtype")               # as the checkpoint stores them
    elif dtype in FLOATS and stored is None:
        _say(flags, "model.dtype", "--dtype", dtype)
    elif dtype == "fp8" and stored is None:
        _say(flags, "model.dtype", "--quantization", "fp8")


def _say_tables(flags: Flags, pool: Pool, site: Site) -> None:
    """Write the options that vLLM takes as JSON: drafts, masks of grammars, CUDA graphs."""
    speculative = pool.engine.parameters.speculative
    if speculative is not None and speculative.method is not None:
        said = {"method": speculative.method, "num_speculative_tokens": speculative.num_tokens}
        said |= {"model": site.draft.model.hf_id} if site.draft is not None else {}
        tensor_parallel = speculative.draft_tensor_parallel_size
        said |= {"draft_tensor_parallel_size": tensor_parallel} if tensor_parallel is not None else {}
        options = [key for key in HASH_KEYS if getattr(speculative, key)]
        said |= dict.fromkeys(options, True)
        _say(flags, "engine.speculative.method", "--speculative-config", json.dumps(said))
        flags.said.update(f"engine.speculative.{key}" for key in (
            "num_tokens", "model", "config", "num_lookahead_tokens", "draft_tensor_parallel_size", *options))
    interval = pool.engine.parameters.prefix_cache_retention_interval
    if interval is not None:
        _say(flags, "engine.prefix_cache_retention_interval", "--prefix-cache-retention-interval",
             "None" if interval == "dense" else str(interval))
    limits = pool.engine.parameters.limit_mm_per_prompt
    if limits is not None:
        said = {kind: getattr(limits, kind) for kind in KINDS_OF_ITEMS}
        _say(flags, "engine.limit_mm_per_prompt", "--limit-mm-per-prompt", json.dumps(said))
        flags.said.update(f"engine.limit_mm_per_prompt.{kind}" for kind in said)
    if pool.engine.parameters.structured_outputs is not None:
        backend = pool.engine.parameters.structured_outputs.backend
        _say(flags, "engine.structured_outputs.backend", "--structured-outputs-config",
             json.dumps({"backend": backend}))
    graphs = pool.engine.parameters.cuda_graphs
    if graphs is not None and graphs.mode == "none":
        _say(flags, "engine.cuda_graphs.mode", "--enforce-eager")
        flags.said.add("engine.cuda_graphs.capture_sizes")
    elif graphs is not None and (graphs.mode is not None or graphs.capture_sizes):
        said = {"cudagraph_mode": GRAPH_MODES[graphs.mode]} if graphs.mode is not None else {}
        said |= {"cudagraph_capture_sizes": list(graphs.capture_sizes)} if graphs.capture_sizes else {}
        _say(flags, "engine.cuda_graphs.mode", "--compilation-config", json.dumps(said))
        flags.said.add("engine.cuda_graphs.capture_sizes")


def _say_ranks(flags: Flags, pool: Pool, absent: set[str]) -> None:
    """Write the balance of experts, and the interval of prompts of ranks in lock step."""
    experts, data = pool.engine.experts, pool.engine.data_parallel
    if experts is not None and experts.eplb is not None and "engine.experts.eplb" not in absent:
        said = {key: getattr(experts.eplb, key) for key in ("num_redundant_experts", "window_size", "step_interval")}
        flags.arguments.append(("--enable-eplb", None))
        _say(flags, "engine.experts.eplb", "--eplb-config", json.dumps(said))
        flags.said.update(f"engine.experts.eplb.{key}" for key in said)
    if data is not None and data.prefill_schedule_interval > 1:
        _say(flags, "engine.data_parallel.prefill_schedule_interval", "--prefill-schedule-interval",
             str(data.prefill_schedule_interval))


def _say_tier(flags: Flags, pool: Pool) -> None:
    """Write how much host memory vLLM's own backend offloads KV to."""
    if pool.kv_tiers is not None and pool.kv_tiers.protocol == "vllm_offload":
        _say(flags, "kv_tiers.cpu_gib", "--kv-offloading-size", _text(pool.kv_tiers.parameters.cpu_gib))
        _say(flags, "kv_tiers.protocol", "--kv-offloading-backend", "native")
        said = {key: getattr(pool.kv_tiers.parameters, key) for key in OF_CONNECTOR}
        said = {key: value for key, value in said.items() if value != OF_CONNECTOR[key]}
        if said and pool.role == "both":            # else its connector is that of the other pool
            flags.arguments.append(("--kv-transfer-config", json.dumps({"kv_connector_extra_config": said})))
            flags.said.update(f"kv_tiers.{key}" for key in said)
