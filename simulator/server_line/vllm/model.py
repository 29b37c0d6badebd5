"""vLLM's model and cache configuration. Sources: vLLM 0.32.0 and 0.33.0, vllm/config/model.py, cache.py."""
from typing import Any

from simulator.server_line.facts.answers import Refused, Work
from simulator.server_line.facts.checkpoints import Checkpoint
from simulator.server_line.vllm.rules import rules_of

DTYPES = {"half": "float16", "float16": "float16", "float": "float32", "float32": "float32", "bfloat16": "bfloat16"}
NO_FLOAT16 = {"gemma2", "gemma3", "gemma3_text", "glm4", "plamo2"}
BLOCK = 16
KV_DTYPES = (
    "auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "nvfp4_ds_mla",
    "turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc", "octave_k3v4", "octave_k3v3",
    "octave_k3v3_compact", "int4_per_token_head", "int8_per_token_head", "fp8_per_token_head", "nvfp4",
    "nvfp4_4over6", "ultraquant_4bit")
# quant_method of config.json -> the method that vLLM resolves it to, and names that a user may give it.
METHODS = {"awq": ("auto_awq", {"awq", "auto_awq", "awq_marlin", "marlin"}),
           "gptq": ("auto_gptq", {"gptq", "auto_gptq", "gptq_marlin", "marlin"})}
# Formats that replace every name that a user gives: the first of gpt-oss alone.
REPLACING = {"mxfp4": "gpt_oss_mxfp4", "modelopt": "modelopt", "modelopt_fp4": "modelopt_fp4"}
KNOWN_METHODS = {
    "awq", "auto_awq", "fp8", "fbgemm_fp8", "fp_quant", "modelopt", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed",
    "auto_gptq", "gptq", "gptq_marlin", "awq_marlin", "humming", "compressed-tensors", "experts_int8", "quark",
    "moe_wna16", "torchao", "inc", "mxfp4", "gpt_oss_mxfp4", "deepseek_v4_fp8", "online", "fp8_per_tensor",
    "fp8_per_block", "fp8_per_channel", "int8_per_channel_weight_only", "nvfp4_per_token", "mxfp8"}
DEPRECATED_METHODS = {"fbgemm_fp8", "fp_quant"}
# Methods that read a file of the checkpoint.
NEED_FILE = {"awq", "auto_awq", "awq_marlin", "gptq", "auto_gptq", "gptq_marlin", "modelopt", "modelopt_fp4",
             "modelopt_mxfp8", "modelopt_mixed", "moe_wna16"}
BFLOAT16_ALONE = {"gpt_oss_mxfp4", "mxfp4", "modelopt_mxfp8"}
HALVES_ALONE = {"fp8", "modelopt", "modelopt_fp4", "modelopt_mixed", "auto_awq", "auto_gptq"}


def resolve_model(work: Work, checkpoint: Checkpoint) -> None:
    """Resolve the model's runner, dtype, length and quantisation.

    Raises
    ------
    Refused
        A length beyond the model's, a dtype or a quantisation that the model or the checkpoint does not take.
    """
    work.set("model.model", work.given["model"], "flag", "the model")
    runner = work.flag("runner")
    pooling = runner == "pooling" or (runner == "auto" and checkpoint.is_pooling)
    if checkpoint.is_pooling and runner == "generate":
        raise Refused("config", "no such runner", "an embedding model does not generate")
    work.set("model.dtype", _dtype(work, checkpoint, pooling), *_by(work, "dtype", "checkpoint", "the checkpoint's"))
    work.set("model.max_model_len", _max_len(work, checkpoint), *_by(
        work, "max_model_len", "checkpoint", "max_position_embeddings of config.json, scaled as its rope says"))
    work.set("model.quantization", _quantization(work, checkpoint), *_by(
        work, "quantization", "checkpoint", "quantization_config of the checkpoint"))
    work.set("model.runner_type", "pooling" if pooling else "generate")
    for key, value in (("is_moe", checkpoint.num_experts > 0), ("use_mla", checkpoint.is_latent),
                       ("is_hybrid", checkpoint.is_hybrid), ("is_multimodal_model", checkpoint.is_multimodal),
                       ("is_attention_free", False), ("architecture", checkpoint.architecture)):
        work.set(f"model.{key}", value, "checkpoint", "config.json")
    work.take("model", "enforce_eager", "disable_sliding_window", "generation_config", "max_logprobs")
    work.set("model.disable_cascade_attn", True, "engine", "cascade attention is gone")


def _by(work: Work, flag: str, by: str, why: str) -> tuple[str, str]:
    given = work.given.get(flag)
    return ("flag", f"--{flag.replace('_', '-')}") if given not in (None, "auto", -1) else (by, why)


def _dtype(work: Work, checkpoint: Checkpoint, pooling: bool) -> str:
    asked = str(work.flag("dtype")).lower()
    if asked == "auto":
        stored = checkpoint.dtype
        if stored == "float32":             # never run as stored: half the size, which serving wants
            stored = "float16" if pooling else "bfloat16"
        return "bfloat16" if stored == "float16" and checkpoint.model_type in NO_FLOAT16 else stored
    if asked not in DTYPES:
        raise Refused("config", "unknown dtype", f"dtype {asked}: expected one of auto, {', '.join(DTYPES)}")
    if DTYPES[asked] == "float16" and checkpoint.model_type in NO_FLOAT16:
        raise Refused("config", "dtype of the model", f"{checkpoint.model_type} is not stable in float16")
    return DTYPES[asked]


def _max_len(work: Work, checkpoint: Checkpoint) -> int:
    derived = _overridden(work, checkpoint.max_len)
    if work.flag("disable_sliding_window") and checkpoint.window:
        derived = min(derived, checkpoint.window)
    asked = work.flag("max_model_len")
    if asked in (None, -1):
        return derived
    if asked < 1:
        raise Refused("config", "bad number", f"max_model_len {asked}: expected 1 or more")
    if asked > derived:
        fault = f"max_model_len {asked} is above {derived}, the longest text of the model"
        if work.question.environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") not in ("1", "true", "True"):
            raise Refused("config", "longer than the model", f"{fault}; VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 allows it")
        work.notes.append(fault)
    return asked


def _overridden(work: Work, length: int) -> int:
    overrides = work.flag("hf_overrides")
    if not isinstance(overrides, dict):
        return length
    length = overrides.get("max_position_embeddings", length)
    rope = overrides.get("rope_parameters", overrides.get("rope_scaling"))
    if isinstance(rope, dict) and rope.get("rope_type", rope.get("type")) in ("linear", "dynamic"):
        length = int(length * rope.get("factor", 1.0))
    return length


def _quantization(work: Work, checkpoint: Checkpoint) -> str | None:
    asked = work.flag("quantization")
    asked = asked.lower() if isinstance(asked, str) else None
    method = checkpoint.method
    if method in REPLACING:
        resolved = REPLACING[method]
    else:
        resolved, names = METHODS.get(method, (method, {method}))
        if asked is not None and method is not None and asked not in names:
            raise Refused("config", "quantisation of the checkpoint",
                          f"the checkpoint is stored as {method}, quantization asks for {asked}")
        resolved = asked if method is None else resolved
    if resolved is not None and resolved not in KNOWN_METHODS:
        raise Refused("config", "unknown quantisation", f"quantization {resolved}: no such method")
    if resolved in DEPRECATED_METHODS and not work.flag("allow_deprecated_quantization"):
        raise Refused("config", "deprecated quantisation",
                      f"{resolved} is deprecated; --allow-deprecated-quantization allows it")
    return resolved


def check_method(work: Work, checkpoint: Checkpoint) -> None:
    """Check the quantisation method against dtype and checkpoint.

    Raises
    ------
    Refused
        The checkpoint lacks the method's file, or the dtype is not the method's.
    """
    method, dtype = work.get("model.quantization"), work.get("model.dtype")
    if method in NEED_FILE and checkpoint.method is None:
        raise Refused("config", "no file of the quantisation", f"the checkpoint has no configuration for {method}")
    if (method in BFLOAT16_ALONE and dtype != "bfloat16") or (method in HALVES_ALONE and dtype == "float32"):
        raise Refused("config", "dtype of the quantisation", f"{method} does not take {dtype}")


def resolve_cache(work: Work, checkpoint: Checkpoint) -> None:
    """Resolve the cache's configuration, before the backend has its word.

    Raises
    ------
    Refused
        A share beyond 1, a type that is none.
    """
    share = work.flag("gpu_memory_utilization")
    dtype = work.flag("kv_cache_dtype")
    if not 0 < share <= 1:
        raise Refused("config", "share of memory", f"gpu_memory_utilization {share}: expected above 0 and at most 1")
    if dtype not in KV_DTYPES:
        raise Refused("config", "unknown KV dtype", f"kv_cache_dtype {dtype}: no such type")
    given = work.flag("block_size")
    if given is not None and given < 1:
        raise Refused("config", "bad number", f"block_size {given}: expected 1 or more")
    work.set("cache.block_size", given or BLOCK, *_by(work, "block_size", "engine", "16 for every backend at first"))
    work.set("cache.user_specified_block_size", given is not None)
    work.take("cache", "gpu_memory_utilization", "kv_cache_memory_bytes", "num_gpu_blocks_override",
              "prefix_caching_hash_algo", "prefix_match_unit", "mamba_cache_dtype", "mamba_ssm_cache_dtype",
              "kv_offloading_size", "kv_offloading_backend", "kv_sharing_fast_prefill", "swa_bounded_replay")
    interval = work.set("cache.prefix_cache_retention_interval", work.flag("prefix_cache_retention_interval", 0))
    if interval is not None and interval < 0:
        raise Refused("config", "bad number", "prefix_cache_retention_interval: expected 0 or more")
    work.set("cache.kv_cache_dtype_skip_layers", list(work.flag("kv_cache_dtype_skip_layers") or []))
    work.set("cache.sliding_window", _window(work, checkpoint), "checkpoint", "every layer slides")
    work.set("cache.cache_dtype", _cache_dtype(dtype, checkpoint), *_by(
        work, "kv_cache_dtype", "checkpoint", "kv_cache_quant_algo of ModelOpt, else the model's"))
    work.set("cache.hash_block_size", None)
    work.set("cache.mamba_block_size", work.flag("mamba_block_size"))
    work.set("cache.mamba_cache_mode", "none")


def _window(work: Work, checkpoint: Checkpoint) -> int | None:
    return None if work.flag("disable_sliding_window") else checkpoint.window


def _cache_dtype(asked: str, checkpoint: Checkpoint) -> str:
    if asked != "auto":
        return asked
    return {"FP8": "fp8_e4m3", "NVFP4": "nvfp4"}.get(checkpoint.kv_algorithm or "", "auto")


def defaults_of_use(work: Work) -> tuple[bool, bool]:
    """Return whether prompts are cut into chunks, and prefixes cached."""
    causal = work.get("model.runner_type") == "generate" or work.get("model.architecture") != "XLMRobertaModel"
    chunked, cached = work.flag("enable_chunked_prefill"), work.flag("enable_prefix_caching")
    return (causal if chunked is None else chunked), (causal if cached is None else cached)


def checked_kv_dtype(work: Work, checkpoint: Checkpoint) -> Any:
    """Let the model change the cache's type, and check it against the model's.

    Raises
    ------
    Refused
        0.33: a 16-bit cache of another type than the model; a 4-bit cache of latent attention.
    """
    dtype, kv_dtype = work.get("model.dtype"), work.get("cache.cache_dtype")
    architecture = checkpoint.architecture
    if architecture == "DeepseekV32ForCausalLM" and kv_dtype == "bfloat16":
        kv_dtype = work.set("cache.cache_dtype", "auto", "engine", "DeepSeek-V3.2 takes bfloat16 as its own type")
    if architecture == "GlmMoeDsaForCausalLM" and kv_dtype == "auto" and work.question.card.major == 10:
        kv_dtype = work.set("cache.cache_dtype", "fp8_e4m3", "engine", "GLM-5 on compute capability 10.x")
    if rules_of(work.question.version).checks_kv_dtype and kv_dtype in ("float16", "bfloat16") and kv_dtype != dtype:
        raise Refused("config", "KV dtype of another model", f"kv_cache_dtype {kv_dtype} with dtype {dtype}")
