"""A server's resolved values as keys of an experiment: the inverse of `flags.py`, with its table of names."""
import re

from simulator.domain.measured_acceptance import published
from simulator.domain.vllm_versions import VERSIONS
from simulator.server_line.facts.answers import Answer
from simulator.server_line.facts.checkpoints import Checkpoint
from simulator.server_line.facts.flag_tables import nearest_among
from simulator.study.deployment.event_keys import say_events
from simulator.study.deployment.flags import (
    GRAPH_MODES,
    HASH_KEYS,
    KINDS_OF_ITEMS,
    NUMBERS,
    OF_CONNECTOR,
    SWITCHES,
    SWITCHES_OF_ENCODERS,
)
from simulator.study.deployment.keyed import Keyed, comment_of, drop, say, take, value_of
from simulator.study.deployment.sglang_keys import say_sglang

# Our key -> "table.key" of the engine, where the names differ.
PLACES_OF_VLLM = {
    "topology.tensor_parallel": "parallel.tensor_parallel_size",
    "topology.pipeline_parallel": "parallel.pipeline_parallel_size",
    "topology.data_parallel": "parallel.data_parallel_size",
    "topology.decode_context_parallel": "parallel.decode_context_parallel_size",
    "topology.prefill_context_parallel": "parallel.prefill_context_parallel_size",
    "topology.cp_kv_cache_interleave_size": "parallel.cp_kv_cache_interleave_size",
    "topology.dcp_comm_backend": "parallel.dcp_comm_backend",
    "engine.max_model_len": "model.max_model_len",
    "engine.block_size": "after_load.block_size",
    "engine.gpu_memory_utilization": "cache.gpu_memory_utilization",
    "engine.kv_cache_memory_bytes": "cache.kv_cache_memory_bytes",
    "engine.num_gpu_blocks": "cache.num_gpu_blocks_override",
    "engine.enable_prefix_caching": "cache.enable_prefix_caching",
    "engine.prefix_match_unit": "cache.prefix_match_unit",
    "engine.policy": "scheduler.policy",
    "engine.task": "model.runner_type",
    "engine.lora.max_loras": "lora.max_loras",
    "engine.lora.max_cpu_loras": "lora.max_cpu_loras",
    "engine.lora.rank": "lora.max_lora_rank",
    "model.kv_cache_dtype": "cache.cache_dtype",
}
KV_DTYPES = {"auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"}


def keys_of(engine: str, version: str, answer: Answer, checkpoint: Checkpoint) -> Keyed:
    """Return the keys of one server."""
    keyed = Keyed({}, {}, {}, set())
    _say_model(keyed, answer, checkpoint, engine)
    if engine == "vllm":
        _say_vllm(keyed, version, answer, checkpoint)
    elif engine == "sglang":
        say_sglang(keyed, answer, checkpoint)
    else:
        _say_trtllm(keyed, answer)
    return keyed


def _say_model(keyed: Keyed, answer: Answer, checkpoint: Checkpoint, engine: str) -> None:
    if checkpoint.model is not None:
        keyed.keys["model.name"] = (checkpoint.model, f"given: {checkpoint.hub_id}")
    place = {"vllm": "model.", "sglang": "", "trtllm": ""}[engine]
    quantization, dtype = value_of(answer, f"{place}quantization"), value_of(answer, f"{place}dtype")
    if checkpoint.stored is not None:
        keyed.keys["model.dtype"] = (checkpoint.stored, f"checkpoint: stored as {checkpoint.method}")
    elif checkpoint.method is None and quantization == "fp8":
        keyed.keys["model.dtype"] = ("fp8", "given: --quantization fp8, made at loading")
    elif checkpoint.method is None and dtype in ("float16", "float32", "bfloat16") and dtype != checkpoint.dtype:
        keyed.keys["model.dtype"] = (dtype, "given: --dtype")
    for flag in ("dtype", "quantization", "model", "model_path"):
        take(keyed, answer, flag, "model.dtype" if flag in ("dtype", "quantization") else "model.name")


def _say_vllm(keyed: Keyed, version: str, answer: Answer, checkpoint: Checkpoint) -> None:
    known = version if version in VERSIONS else nearest_among(VERSIONS, version)
    why = f"vLLM {version}" if known == version else f"vLLM {version}: the scheduler of {known}, the nearest there is"
    keyed.keys["engine.scheduler"], keyed.keys["engine.vllm_version"] = ("vllm", ""), (known, why)
    for key, flag in (NUMBERS | SWITCHES).items():
        name = flag.lstrip("-").replace("-", "_")
        place = PLACES_OF_VLLM.get(key, f"scheduler.{key.rpartition('.')[2]}")
        take(keyed, answer, name, key)
        if key == "model.kv_cache_dtype" and value_of(answer, place) not in KV_DTYPES:
            keyed.left["kv_cache_dtype"] = "a KV cache of another size"
            keyed.taken.pop("kv_cache_dtype", None)
        elif not key.startswith("engine.experts"):
            say(keyed, key, answer, place)
    say(keyed, "engine.max_model_len", answer, "model.max_model_len")
    take(keyed, answer, "max_model_len", "engine.max_model_len")
    _say_size(keyed)
    if "after_load" not in answer.values:
        say(keyed, "engine.block_size", answer, "cache.block_size")
    if value_of(answer, "model.max_model_len") > checkpoint.max_len:
        keyed.keys["engine.allow_long_max_model_len"] = (True, "environment: VLLM_ALLOW_LONG_MAX_MODEL_LEN")
    if value_of(answer, "scheduler.max_num_scheduled_tokens") == value_of(answer, "scheduler.max_num_batched_tokens"):
        keyed.keys.pop("engine.max_num_scheduled_tokens", None)
    _say_experts(keyed, answer)
    _say_graphs(keyed, answer)
    _say_drafts(keyed, answer, checkpoint)
    if checkpoint.is_multimodal:
        _say_items(keyed, answer)
    _say_intervals(keyed, answer, checkpoint)
    _say_retention(keyed, answer, checkpoint)
    _say_others(keyed, answer)
    say_events(keyed, version, answer)


def _say_intervals(keyed: Keyed, answer: Answer, checkpoint: Checkpoint) -> None:
    """Take the interval between prompts, and the intervals of ranks in lock step."""
    key, name, sync = "engine.prefill_schedule_interval", "prefill_schedule_interval", "dp_sync_interval"
    in_lock_step = value_of(answer, "parallel.data_parallel_size") > 1 and checkpoint.num_experts > 0
    if sync in answer.given:
        keyed.taken[sync] = f"engine.data_parallel.{sync}"
        keyed.keys[keyed.taken[sync]] = (answer.given[sync], "given")
        if not in_lock_step:
            drop(keyed, sync)
    if name not in answer.given or key not in keyed.keys:
        return
    if in_lock_step:
        keyed.taken[name] = f"engine.data_parallel.{name}"
        keyed.keys[keyed.taken[name]] = keyed.keys.pop(key)
    elif key not in VERSIONS[keyed.keys["engine.vllm_version"][0]].flags:
        drop(keyed, name)


def _say_retention(keyed: Keyed, answer: Answer, checkpoint: Checkpoint) -> None:
    """Take the interval of windows and states kept for others; a model without any keeps all blocks."""
    name = "prefix_cache_retention_interval"
    if name not in answer.given:
        return
    keyed.taken[name] = f"engine.{name}"
    interval = answer.given[name]
    keyed.keys[keyed.taken[name]] = ("dense" if interval is None else interval, "given")
    if not (checkpoint.has_windows or checkpoint.is_hybrid) or not value_of(answer, "cache.enable_prefix_caching"):
        drop(keyed, name)


def _say_items(keyed: Keyed, answer: Answer) -> None:
    """Take the limits on images and videos, which size the encoder's profile run."""
    for key in SWITCHES_OF_ENCODERS:
        flag = key.rpartition(".")[2]
        if answer.given.get(flag):
            keyed.keys[key] = (True, "given")
        take(keyed, answer, flag, key)
    limits = answer.given.get("limit_mm_per_prompt") or {}
    take(keyed, answer, "limit_mm_per_prompt", "engine.limit_mm_per_prompt")
    for kind, limit in limits.items():
        count = limit.get("count") if isinstance(limit, dict) else limit
        if kind in KINDS_OF_ITEMS and isinstance(count, int):
            keyed.keys[f"engine.limit_mm_per_prompt.{kind}"] = (count, "given")
    if any(kind not in KINDS_OF_ITEMS or isinstance(limit, dict) for kind, limit in limits.items()):
        keyed.left["limit_mm_per_prompt"] = "sizes of items in the profile run of the encoder, and items of other kinds"


def _say_size(keyed: Keyed) -> None:
    """Leave one of the keys that size the KV cache: blocks replace bytes, and bytes the share of memory."""
    size_bytes = "kv_cache_memory_bytes"
    for size, idle in (("num_gpu_blocks", size_bytes), (size_bytes, "gpu_memory_utilization")):
        if f"engine.{size}" in keyed.keys and keyed.keys.pop(f"engine.{idle}", None) is not None:
            keyed.taken.pop(idle, None)
            keyed.idle.add(idle)


def _say_experts(keyed: Keyed, answer: Answer) -> None:
    ranks = answer.values["parallel"]
    size = (ranks["tensor_parallel_size"] * ranks["data_parallel_size"] * ranks["prefill_context_parallel_size"])
    if ranks["enable_expert_parallel"] and size > 1:
        keyed.keys["topology.expert_parallel"] = (size, "given: --enable-expert-parallel, TP x DP")
    take(keyed, answer, "enable_expert_parallel", "topology.expert_parallel")
    if ranks["enable_expert_parallel"] and ranks["data_parallel_size"] > 1:
        backend = ranks["all2all_backend"]
        if backend in ("allgather_reducescatter", "deepep_high_throughput", "deepep_low_latency"):
            keyed.keys["engine.experts.all2all_backend"] = (backend, comment_of(answer, "parallel.all2all_backend"))
        else:
            keyed.left["all2all_backend"] = "times of the experts' messages"
            keyed.taken.pop("all2all_backend", None)
    if ranks["enable_eplb"] and ranks["data_parallel_size"] * ranks["tensor_parallel_size"] > 1:
        stated = dict(re.findall(r"(\w+)=(\w+)", ranks["eplb_config"]))
        for key in ("num_redundant_experts", "window_size", "step_interval"):
            keyed.keys[f"engine.experts.eplb.{key}"] = (int(stated[key]), "given: --enable-eplb")
    for flag in ("enable_eplb", "eplb_config"):
        take(keyed, answer, flag, "engine.experts.eplb")


def _say_graphs(keyed: Keyed, answer: Answer) -> None:
    graphs = answer.values["cudagraph"]
    modes = {named: ours for ours, named in GRAPH_MODES.items()} | {"NONE": "none"}
    keyed.keys["engine.cuda_graphs.mode"] = (modes[graphs["cudagraph_mode"]], comment_of(
        answer, "cudagraph.cudagraph_mode"))
    if graphs["cudagraph_capture_sizes"] and graphs["cudagraph_mode"] != "NONE":
        keyed.keys["engine.cuda_graphs.capture_sizes"] = (graphs["cudagraph_capture_sizes"], comment_of(
            answer, "cudagraph.cudagraph_capture_sizes"))
    for flag in ("enforce_eager", "compilation_config", "optimization_level", "cudagraph_capture_sizes",
                 "max_cudagraph_capture_size", "performance_mode"):
        take(keyed, answer, flag, "engine.cuda_graphs")


def _say_drafts(keyed: Keyed, answer: Answer, checkpoint: Checkpoint) -> None:
    drafts = answer.values.get("speculative")
    flags = ("speculative_config", "spec_method", "spec_model", "spec_tokens")
    if drafts is None:
        return
    if drafts["method"] not in ("draft_model", "eagle", "eagle3", "medusa", "mtp", "ngram", "suffix") or (
            drafts["parallel_drafting"] and drafts["method"] not in ("draft_model", "eagle", "eagle3")):
        alike = " in one pass" if drafts["parallel_drafting"] and drafts["method"] == "mtp" else ""
        keyed.left.update({flag: f"drafts by {drafts['method']}{alike}" for flag in flags if flag in answer.given})
        return
    keyed.keys["engine.speculative.method"] = (drafts["method"], "given: --speculative-config")
    keyed.keys["engine.speculative.num_tokens"] = (drafts["num_speculative_tokens"], "given: --speculative-config")
    if drafts["parallel_drafting"]:
        keyed.keys["engine.speculative.parallel_drafting"] = (True, "given: --speculative-config")
        keyed.keys["engine.speculative.acceptance.mean_length"] = (1.0, "not known: depends on drafter and texts")
    elif drafts["method"] in ("ngram", "suffix"):
        keyed.keys["engine.speculative.drafter_per_sequence_us"] = (0.0, "not known: host time of the look-up")
        keyed.keys["engine.speculative.acceptance.mean_length"] = (1.0, "not known: depends on the texts")
    elif (measured := published(checkpoint.model or "", drafts["method"], str(drafts["model"]))) is not None:
        keyed.keys["engine.speculative.acceptance.measured"] = (measured, "published: depends on the texts")
    for flag in flags:
        take(keyed, answer, flag, "engine.speculative")
    for key in HASH_KEYS:
        if drafts.get(key):
            keyed.keys[f"engine.speculative.{key}"] = (True, "given: --speculative-config")
    ranks = drafts["draft_tensor_parallel_size"]
    if ranks in (None, value_of(answer, "parallel.tensor_parallel_size")):
        return
    if drafts["method"] == "draft_model":
        keyed.keys["engine.speculative.draft_tensor_parallel_size"] = (ranks, "given: --speculative-config")
    else:
        keyed.left["speculative_config"] = f"drafts on {ranks} rank: taken as on all ranks, which is faster"


def _say_others(keyed: Keyed, answer: Answer) -> None:
    if "lora" in answer.values:
        take(keyed, answer, "enable_lora", "engine.lora")
    else:
        for key in [key for key in keyed.keys if key.startswith("engine.lora.")]:
            del keyed.keys[key]
    transfer, size = answer.values.get("kv_transfer"), value_of(answer, "cache.kv_offloading_size")
    if size is None and transfer and transfer.get("kv_connector") == "OffloadingConnector":
        size = (transfer["kv_connector_extra_config"].get("cpu_bytes_to_use") or 0) / 2**30
    if size and value_of(answer, "cache.kv_offloading_backend") == "native":
        keyed.keys["kv_tiers.protocol"] = ("vllm_offload", "given: KV offloading to host memory")
        keyed.keys["kv_tiers.cpu_gib"] = (float(size), "given: of a replica, or of each data-parallel rank")
        for flag in ("kv_offloading_size", "kv_offloading_backend", "kv_transfer_config"):
            take(keyed, answer, flag, "kv_tiers")
        extra = (transfer or {}).get("kv_connector_extra_config") or {}
        keyed.keys.update({f"kv_tiers.{key}": (value, "given: kv_connector_extra_config")
                           for key, value in extra.items() if key in OF_CONNECTOR})
        if left := sorted(extra.keys() - OF_CONNECTOR.keys() - {"cpu_bytes_to_use", "spec_name"}):
            keyed.left["kv_transfer_config"] = f"{', '.join(left)} of the connector"
            keyed.taken.pop("kv_transfer_config", None)
    if transfer and transfer.get("kv_connector") in ("NixlConnector", "MooncakeConnector"):
        take(keyed, answer, "kv_transfer_config", "kv_transfer.protocol")
    servers = answer.given.get("api_server_count")
    if servers and "max_num_queued_tokens" in answer.given:         # each counts its own prompts
        keyed.keys["latency.host.api_server_count"] = (servers, "given: --api-server-count")
        take(keyed, answer, "api_server_count", "latency.host.api_server_count")
    if value_of(answer, "parallel.data_parallel_hybrid_lb"):
        keyed.keys["engine.data_parallel.load_balancing"] = ("hybrid", "given")
        take(keyed, answer, "data_parallel_hybrid_lb", "engine.data_parallel.load_balancing")


def _say_trtllm(keyed: Keyed, answer: Answer) -> None:
    keyed.keys["engine.scheduler"] = ("tensorrt_llm", "")
    for key, place in (("topology.tensor_parallel", "tp_size"), ("topology.pipeline_parallel", "pp_size"),
                       ("topology.expert_parallel", "ep_size"), ("engine.max_batch_size", "max_batch_size"),
                       ("engine.max_num_tokens", "max_num_tokens"), ("engine.max_model_len", "max_seq_len"),
                       ("engine.enable_chunked_context", "enable_chunked_prefill"),
                       ("engine.block_size", "tokens_per_block"),
                       ("engine.enable_prefix_caching", "enable_block_reuse"),
                       ("engine.capacity_scheduler_policy", "capacity_scheduler_policy"),
                       ("engine.batch_wait_timeout_iters", "batch_wait_timeout_iters"),
                       ("engine.batch_wait_max_tokens_ratio", "batch_wait_max_tokens_ratio"),
                       ("engine.cuda_graph_max_batch_size", "cuda_graph_max_batch_size"),
                       ("engine.free_gpu_memory_fraction", "kv_cache_free_gpu_memory_fraction")):
        say(keyed, key, answer, place)
        take(keyed, answer, place, key)
