"""Resolve a command line as SGLang 0.5.23 does, in its order: the first check that fails refuses.

Source: sglang 0.5.23, sglang/srt/server_args.py (prepare_server_args), sglang/srt/arg_groups/pipeline.py.
"""
from collections.abc import Callable

from simulator.server_line.facts.answers import Answer, Question, Refused, Work
from simulator.server_line.facts.arguments import parse
from simulator.server_line.facts.checkpoints import Checkpoint
from simulator.server_line.facts.flag_tables import flag_table
from simulator.server_line.sglang import attention, graphs, memory, speculation

# Keys that are flags as given.
TAKEN = (
    "model_path", "dtype", "kv_cache_dtype", "context_length", "tp_size", "pp_size", "attn_cp_size", "dcp_size",
    "nnodes", "max_running_requests", "max_queued_requests", "max_total_tokens", "chunked_prefill_size",
    "max_prefill_tokens", "prefill_max_requests", "schedule_policy", "schedule_conservativeness", "page_size",
    "swa_full_tokens_ratio", "disable_radix_cache", "disable_overlap_schedule", "enable_mixed_chunk",
    "enable_priority_scheduling", "num_continuous_decode_steps", "attention_backend", "prefill_attention_backend",
    "decode_attention_backend", "sampling_backend", "grammar_backend", "moe_a2a_backend", "moe_runner_backend",
    "deepep_mode", "ep_num_redundant_experts", "enable_eplb", "enable_two_batch_overlap",
    "enable_single_batch_overlap", "disaggregation_mode", "disaggregation_transfer_backend", "load_balance_method",
    "speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens",
    "speculative_draft_model_path", "enable_hierarchical_cache", "hicache_ratio", "hicache_size",
    "hicache_write_policy", "hicache_io_backend", "hicache_mem_layout", "max_loras_per_batch", "max_lora_rank",
    "lora_backend", "enable_lora", "cpu_offload_gb", "stream_interval", "disable_custom_all_reduce",
    "mamba_full_memory_ratio", "max_mamba_cache_size", "mamba_ssm_dtype", "disable_hybrid_swa_memory",
    "radix_eviction_policy", "enable_unified_memory", "retraction_policy", "disable_cuda_graph",
    "disable_shared_experts_fusion", "tokenizer_worker_num", "kv_events_config", "enable_metrics", "quantization",
    "ep_size", "mem_fraction_static", "prefill_decode_interval")
# Kernels of experts that do not take the shared expert as one more.
SEPARATE_RUNNERS = ("lora_triton", "lora_cutedsl", "lora_marlin", "flashinfer_cutedsl", "flashinfer_trtllm",
                    "experimental_sgl_trtllm", "flashinfer_trtllm_routed")


def resolve(question: Question, read_config: Callable[[str], list[str]] | None = None) -> Answer:
    """Return the values that the server resolves its command line to.

    Parameters
    ----------
    read_config : words of a --config file.

    Raises
    ------
    Refused
        As the engine refuses, with the step and the cause.
    InputErrors
        A model of no known shape.
    """
    table = flag_table(question.engine, question.version)
    words = list(question.argv)
    if "--config" in words[:-1] and read_config is not None:
        place = words.index("--config")
        words = [*read_config(words[place + 1]), *words[:place], *words[place + 2:]]
    given = parse(table, words)
    if "model_path" not in given:
        raise Refused("parse", "missing value", "the following arguments are required: --model-path")
    work = Work(question, given, table.defaults())
    checkpoint = question.checkpoint_of(given["model_path"])
    for key in TAKEN:
        work.set(key, work.flag(key), *(("flag", f"--{key.replace('_', '-')}") if key in given else
                                        ("engine", "its default")))
    if "scheduler_recv_interval" in given:
        work.set("scheduler_recv_interval", given["scheduler_recv_interval"], "flag", "--scheduler-recv-interval")
    _resolve_ranks(work, checkpoint)
    _resolve_cache(work)
    _resolve_role(work)
    _check_length(work, checkpoint)
    graphs.resolve_graphs(work, checkpoint)
    memory.resolve_memory(work, checkpoint)
    _resolve_model(work, checkpoint)
    attention.resolve_attention(work, checkpoint)
    _check_cache(work)
    _divide_for_attention(work)
    _resolve_experts(work)
    speculation.resolve_speculation(work, checkpoint)
    if work.get("pp_size") > 1:
        work.set("disable_overlap_schedule", True, "engine", "pipeline stages")
    work.set("post_capture_kv_sizing_planned", False)
    return work.answer()


def _resolve_ranks(work: Work, checkpoint: Checkpoint) -> None:
    """Set data parallelism: of replicas, or of attention within tensor parallelism (--enable-dp-attention)."""
    data, attention_ranks = work.flag("dp_size", 1), work.flag("attn_dp_size", 1)
    if work.flag("enable_dp_attention") and attention_ranks in (None, 1):
        data, attention_ranks = 1, data
    work.set("dp_size", data)
    work.set("attn_dp_size", attention_ranks or 1)
    work.set("enable_dp_attention", bool(work.flag("enable_dp_attention")) and attention_ranks > 1)


def _resolve_cache(work: Work) -> None:
    staged = work.flag("hicache_host_memory_mode") == "buffer_only"
    if work.get("hicache_ratio") is None and work.get("disaggregation_mode") != "decode":
        work.set("hicache_ratio", 1.2 if staged else 2.0)
    for key, share in (("swa_full_tokens_ratio", 0.8), ("mamba_full_memory_ratio", 0.9)):
        if work.get(key) is None:
            work.set(key, share)


def _resolve_role(work: Work) -> None:
    mode = work.get("disaggregation_mode")
    if mode == "decode" and not work.flag("disaggregation_decode_enable_radix_cache"):
        work.set("disable_radix_cache", True, "engine", "a server for decodes caches no prefixes")
    if work.get("load_balance_method") == "auto":
        work.set("load_balance_method", "follow_bootstrap_room" if mode == "prefill" else "round_robin")


def _check_length(work: Work, checkpoint: Checkpoint) -> None:
    length = work.get("context_length")
    if length is not None and length > checkpoint.max_len and work.question.environment.get(
            "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN") not in ("1", "true", "True"):
        raise Refused("resolve", "longer than the model",
                      f"context_length {length} is above {checkpoint.max_len}, the longest text of the model; "
                      "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 allows it")
    asked = work.get("quantization")
    if asked is not None and checkpoint.method is not None and not _agrees(asked, checkpoint.method):
        raise Refused("resolve", "quantisation of the checkpoint",
                      f"the checkpoint is stored as {checkpoint.method}, quantization asks for {asked}")


def _agrees(asked: str, method: str) -> bool:
    return asked == method or {asked, method} <= {"modelopt", "modelopt_fp8", "modelopt_fp4", "fp8"} or (
        asked.split("_")[0] == method and asked.endswith("marlin"))


def _resolve_model(work: Work, checkpoint: Checkpoint) -> None:
    """Set the values that belong to a family of models."""
    name, newest = checkpoint.architecture, work.question.card.major == 10
    auto = work.get("moe_runner_backend") == "auto"
    if name == "GptOssForCausalLM" and checkpoint.method == "mxfp4":
        work.set("dtype", "bfloat16", "engine", "kernels of mxfp4")
        if auto and work.question.card.major in (10, 12):
            work.set("moe_runner_backend", "flashinfer_mxfp4", "engine", "mxfp4 experts on compute capability 10, 12")
    if name.startswith(("Gemma2For", "Gemma3")):
        work.set("disable_hybrid_swa_memory", True, "engine", "Gemma 2 and 3")
    if newest and name in ("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "Qwen3MoeForCausalLM",
                           "Qwen3NextForCausalLM", "Qwen3_5MoeForConditionalGeneration"):
        if work.get("quantization") is None and checkpoint.method is not None:
            work.set("quantization", checkpoint.method, "checkpoint", "quant_method of config.json")
        if auto and work.get("moe_a2a_backend") == "none" and work.get("quantization") in (
                "fp8", "modelopt_fp4", "modelopt_mixed", None):
            work.set("moe_runner_backend", "flashinfer_trtllm", "engine", "experts on compute capability 10")


def _check_cache(work: Work) -> None:
    if work.get("enable_hierarchical_cache") and work.get("disable_radix_cache"):
        raise Refused("resolve", "cache switched on and off",
                      "--enable-hierarchical-cache needs the prefix cache, which is off")
    if work.get("sampling_backend") is None:
        work.set("sampling_backend", "flashinfer")
    if work.get("grammar_backend") is None:
        work.set("grammar_backend", "xgrammar")
    if work.get("prefill_decode_interval") is None:
        work.set("prefill_decode_interval", 0)


def _divide_for_attention(work: Work) -> None:
    ranks = work.get("attn_dp_size")
    if ranks == 1:
        return
    if work.get("tp_size") % ranks:
        raise Refused("resolve", "attention ranks by TP", f"tp_size {work.get('tp_size')} is no multiple of {ranks}")
    work.set("schedule_conservativeness", work.get("schedule_conservativeness") * 0.3, "engine",
             "x 0.3 with attention in data parallel ranks")
    work.set("chunked_prefill_size", work.get("chunked_prefill_size") // ranks, "engine",
             f"of all {ranks} attention ranks together")
    graphs.clamp_prefill(work)


def _resolve_experts(work: Work) -> None:
    backend = work.get("moe_a2a_backend")
    if backend == "flashinfer" and work.get("attn_dp_size") != work.get("tp_size"):
        raise Refused("resolve", "experts' messages", "the flashinfer backend needs attention ranks = tp_size")
    if work.get("moe_runner_backend") in SEPARATE_RUNNERS or backend in ("flashinfer", "flashinfer_megamoe"):
        work.set("disable_shared_experts_fusion", True, "engine", "kernels of experts that take no shared one")
    if backend != "none":
        work.set("ep_size", work.get("tp_size"), "engine", f"= tp_size with {backend}")
