"""Resolve a command line as vLLM 0.32.0 or 0.33.0 does, in its order: the first check that fails refuses.

Sources: vllm/engine/arg_utils.py (create_engine_config), vllm/config/vllm.py (VllmConfig.__post_init__),
vllm/entrypoints/cli/serve.py (front-end processes), at both tags.
"""
from collections.abc import Callable

from simulator.server_line.facts.answers import Answer, Question, Refused, Work
from simulator.server_line.facts.checkpoints import Checkpoint
from simulator.server_line.facts.flag_tables import flag_table
from simulator.server_line.vllm import attention, batch, graphs, model, parallel, speculation, transfer
from simulator.server_line.vllm.line import given_by
from simulator.server_line.vllm.rules import rules_of

BATCHED_MICRO = ("deepep_low_latency", "deepep_high_throughput", "nixl_ep")
FLOAT32_STATES = ("NemotronH", "Qwen3_5")       # families with checkpoints that keep states in float32
UNKNOWN_VARIABLES = ("VLLM_USE_V1", "VLLM_ATTENTION_BACKEND", "VLLM_ALL2ALL_BACKEND")


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
    table, _ = flag_table(question.engine, question.version), rules_of(question.version)
    given = given_by(table, question.argv, read_config)
    work = Work(question, given, table.defaults())
    checkpoint = question.checkpoint_of(given["model"])
    work.notes += [f"{name} is unknown to vLLM {question.version}: ignored" for name in UNKNOWN_VARIABLES
                   if name in question.environment]
    carried = transfer.transfer_of(work)
    asked = graphs.compilation_of_flag(work)
    _resolve_parts(work, checkpoint)
    drafts = speculation.num_drafts(work)
    asked = graphs.compilation_of(work, asked)
    level = graphs.resolve_level(work)
    _check_whole(work, checkpoint, carried)
    _resolve_async(work)
    graphs.resolve_modes(work, checkpoint, asked, level)
    batch.resolve_scheduled_tokens(work, drafts)
    transfer.check_graphs(work, carried)
    graphs.resolve_sizes(work, checkpoint, asked, drafts)
    _resolve_images(work, checkpoint)
    graphs.drop_graphs_of_deepep(work)
    _check_micro_batches(work)
    transfer.resolve_transfer(work, checkpoint, carried)
    _resolve_rest(work, checkpoint, drafts)
    attention.resolve_attention(work, checkpoint)
    return work.answer()


def _resolve_parts(work: Work, checkpoint: Checkpoint) -> None:
    """Resolve the parts that the parser makes one by one."""
    model.resolve_model(work, checkpoint)
    chunked, cached = model.defaults_of_use(work)
    work.set("cache.enable_prefix_caching", cached, *(
        ("flag", "--enable-prefix-caching") if "enable_prefix_caching" in work.given else
        ("engine", "on for generation")))
    model.resolve_cache(work, checkpoint)
    parallel.resolve_parallel(work, checkpoint)
    speculation.resolve_speculation(work, checkpoint)
    batch.resolve_limits(work, checkpoint, chunked)
    batch.resolve_scheduler(work, chunked)
    batch.resolve_lora(work, speculation.num_drafts(work))


def _check_whole(work: Work, checkpoint: Checkpoint, carried: dict | None) -> None:
    """Check the parts against each other, as the whole configuration is made."""
    model.checked_kv_dtype(work, checkpoint)
    if checkpoint.is_hybrid:
        _resolve_states(work, checkpoint)
    parallel.check_model_ranks(work, checkpoint)
    speculation.shorten_to_draft(work)
    transfer.check_ranks(work, checkpoint, carried)
    model.check_method(work, checkpoint)
    if checkpoint.is_latent and work.get("cache.cache_dtype") in ("nvfp4", "nvfp4_4over6"):
        raise Refused("config", "KV dtype of latent attention", "nvfp4 is no cache type of latent attention")


def _resolve_states(work: Work, checkpoint: Checkpoint) -> None:
    if checkpoint.architecture.startswith(FLOAT32_STATES) and work.get("cache.mamba_ssm_cache_dtype") == "auto":
        work.set("cache.mamba_ssm_cache_dtype", "float32", "checkpoint", "states in float32")
    if not work.get("cache.enable_prefix_caching"):
        if work.get("cache.mamba_block_size") is None:
            work.set("cache.mamba_block_size", work.get("model.max_model_len"), "engine", "states without caching")
        return
    work.set("cache.mamba_cache_mode", "align", "engine", "prefix caching of a hybrid")
    if not work.get("scheduler.enable_chunked_prefill"):
        raise Refused("config", "caching of states without chunks", "prefix caching of states needs chunked prefill")
    if work.get("cache.mamba_block_size") is None:
        work.set("cache.mamba_block_size", work.get("cache.block_size"), "engine", "= block_size")


def _resolve_async(work: Work) -> None:
    asked, fault = work.flag("async_scheduling"), speculation.async_fault(work)
    if asked and fault is not None:
        raise Refused("config", "async scheduling", f"async scheduling does not go with {fault}")
    if asked is not None:
        work.set("scheduler.async_scheduling", asked, "flag", "--async-scheduling")
        return
    pooling = work.get("model.runner_type") == "pooling"
    why = "pooling" if pooling else fault
    work.set("scheduler.async_scheduling", why is None, "engine", f"off with {why}" if why else "on by default")


def _resolve_images(work: Work, checkpoint: Checkpoint) -> None:
    if checkpoint.is_multimodal and checkpoint.bidirectional_images and (
            not work.get("scheduler.disable_chunked_mm_input")):
        work.set("scheduler.disable_chunked_mm_input", True, "engine", "image tokens see each other")
    if checkpoint.is_hybrid and work.get("cache.mamba_cache_mode") == "align" and (
            work.get("scheduler.disable_chunked_mm_input")):
        raise Refused("config", "caching of states without chunks", "cached states need images in chunks")


def _check_micro_batches(work: Work) -> None:
    ranks = work.values["parallel"]
    if (ranks["enable_dbo"] or ranks["ubatch_size"] > 1) and ranks["all2all_backend"] not in BATCHED_MICRO:
        raise Refused("config", "micro-batches", f"dual batch overlap needs one of {', '.join(BATCHED_MICRO)}")


def _resolve_rest(work: Work, checkpoint: Checkpoint, drafts: int) -> None:
    structured = work.flag("structured_outputs_config") or {}
    parser = work.flag("reasoning_parser") or structured.get("reasoning_parser") or ""
    if checkpoint.architecture == "GptOssForCausalLM" and not parser:
        parser = "openai_gptoss"
    work.set("structured_outputs.backend", structured.get("backend", "auto"))
    work.set("structured_outputs.disable_any_whitespace", structured.get("disable_any_whitespace", False))
    work.set("structured_outputs.reasoning_parser", parser)
    work.set("offload.backend", work.flag("offload_backend", "auto"))
    work.set("offload.cpu_offload_gb", float(work.flag("cpu_offload_gb")))
    kernel = work.flag("kernel_config") or {}
    for key in ("moe_backend", "linear_backend"):
        work.set(f"kernel.{key}", work.flag(key) if work.flag(key) != "auto" else kernel.get(key, "auto"))
    tuned = work.flag("enable_flashinfer_autotune")
    work.set("kernel.enable_flashinfer_autotune",
             work.get("optimization.optimization_level") != "O0" if tuned is None else tuned)
    if rules_of(work.question.version).has_lookahead:
        reach = drafts if checkpoint.num_mtp_layers > 1 and work.get("speculative.method") == "mtp" else 1
        ahead = reach if drafts and work.get("speculative.method") in ("eagle", "eagle3", "mtp") and (
            work.get("cache.enable_prefix_caching") and "kv_transfer" not in work.values) else 0
        work.set("num_hash_lookahead_tokens", ahead, "engine", "drafts read tokens ahead of a cached block")
    _resolve_front(work)


def _resolve_front(work: Work) -> None:
    count, headless = work.flag("api_server_count"), bool(work.flag("headless"))
    if headless and count:
        raise Refused("validate", "front end without head", "--headless starts no API servers")
    external = bool(work.flag("data_parallel_external_lb")) or work.flag("data_parallel_rank") is not None
    hybrid = bool(work.flag("data_parallel_hybrid_lb")) or work.flag("data_parallel_start_rank") is not None
    if count is None:               # of a command without front end: those of the command that has it
        count = 1 if external or work.flag("data_parallel_multi_port_external_lb") else (
            (work.flag("data_parallel_size_local") or 1) if hybrid else work.flag("data_parallel_size"))
    work.set("api_server_count", count, "engine", "one for each data parallel rank that is balanced here")
