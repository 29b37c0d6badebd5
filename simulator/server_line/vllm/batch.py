"""vLLM's batch limits and scheduler.

Sources: vLLM 0.32.0 and 0.33.0, vllm/engine/arg_utils.py (get_batch_defaults), vllm/config/scheduler.py.
"""
from simulator.domain.server_defaults.vllm import Asked, batch_limits, limits_of
from simulator.domain.vllm_versions import behaviour_of
from simulator.server_line.facts.answers import Refused, Work
from simulator.server_line.facts.checkpoints import Checkpoint

IMAGE_TOKENS = 2496             # of Gemma 4's largest item, a video: 32 frames of 70 tokens and their marks

# Numbers of SchedulerConfig, and the least that each may be.
LEAST = {"max_num_batched_tokens": 1, "max_num_scheduled_tokens": 1, "max_num_seqs": 1, "max_num_active_seqs": 1,
         "long_prefill_token_threshold": 0, "max_num_queued_reqs": 0, "max_num_queued_tokens": 0, "stream_interval": 1,
         "prefill_schedule_interval": 1}


def resolve_limits(work: Work, checkpoint: Checkpoint, chunked: bool) -> tuple[int, int]:
    """Set the largest batch in tokens and sequences, each as given or by the card."""
    card, version = work.question.card, work.question.version
    limits, behaviour = limits_of(card, behaviour_of(version)), behaviour_of(version)
    tokens, seqs, why, is_cut = batch_limits(limits, Asked(
        tokens=work.flag("max_num_batched_tokens"), seqs=work.flag("max_num_seqs"),
        max_model_len=work.get("model.max_model_len"), chunked=chunked,
        batched=work.get("parallel.use_batched_dp_moe"), twice=work.flag("performance_mode") == "throughput",
        largest_item=IMAGE_TOKENS if checkpoint.model_type == "gemma4" else 0), behaviour)
    rule = "; ".join([f"vLLM {version} on {card.short}: {limits.rule}", *why])
    work.set("scheduler.max_num_batched_tokens", tokens, *_by(work, "max_num_batched_tokens", rule))
    rule += "; no more than tokens" if is_cut else ""
    work.set("scheduler.max_num_seqs", seqs, *_by(work, "max_num_seqs", rule))
    return tokens, seqs


def _by(work: Work, flag: str, rule: str) -> tuple[str, str]:
    return ("flag", f"--{flag.replace('_', '-')}") if flag in work.given else ("engine", rule)


def resolve_scheduler(work: Work, chunked: bool) -> None:
    """Resolve the scheduler's configuration.

    Raises
    ------
    Refused
        Limits that contradict each other or the length.
    """
    tokens, seqs, length = (work.get(place) for place in (
        "scheduler.max_num_batched_tokens", "scheduler.max_num_seqs", "model.max_model_len"))
    work.set("scheduler.enable_chunked_prefill", chunked, *_by(work, "enable_chunked_prefill", "on for generation"))
    work.set("scheduler.max_num_scheduled_tokens", work.flag("max_num_scheduled_tokens"))
    work.take("scheduler", "max_num_active_seqs", "max_num_queued_reqs", "max_num_queued_tokens",
              "long_prefill_token_threshold", "long_prefill_token_threshold_adaptive", "stream_interval",
              "prefill_schedule_interval", "disable_chunked_mm_input", "scheduler_reserve_full_isl", "watermark",
              "scheduler_cls", policy="scheduling_policy")
    work.set("scheduler.max_num_encoder_input_tokens", tokens, "engine", "= max_num_batched_tokens")
    work.set("scheduler.encoder_cache_size", tokens, "engine", "= max_num_batched_tokens")
    for key, least in LEAST.items():
        if (found := work.get(f"scheduler.{key}")) is not None and found < least:
            raise Refused("config", "bad number", f"{key} {found}: expected {least} or more")
    active, threshold = work.get("scheduler.max_num_active_seqs"), work.get("scheduler.long_prefill_token_threshold")
    if not 0 <= work.get("scheduler.watermark") < 1:
        raise Refused("config", "bad number", "watermark: expected 0 or more and below 1")
    if tokens < length and not chunked:
        raise Refused("config", "batch below length without chunks",
                      f"max_num_batched_tokens {tokens} is below max_model_len {length}, without chunked prefill")
    if tokens < seqs:
        raise Refused("config", "fewer tokens than sequences",
                      f"max_num_batched_tokens {tokens} is below max_num_seqs {seqs}")
    if active is not None and active > seqs:
        raise Refused("config", "active beyond sequences", f"max_num_active_seqs {active} is above {seqs}")
    if threshold > length:
        raise Refused("config", "threshold beyond length", f"long_prefill_token_threshold {threshold} above {length}")


def resolve_lora(work: Work, drafts: int) -> None:
    """Resolve the adapters' configuration, if they are enabled.

    Raises
    ------
    Refused
        Fewer adapters on the host than on the card; a batch too small for the drafts of all sequences.
    """
    if not work.flag("enable_lora"):
        return
    loras, on_host = work.flag("max_loras"), work.flag("max_cpu_loras") or None
    if on_host is not None and on_host < loras:
        raise Refused("config", "fewer adapters on the host", f"max_cpu_loras {on_host} is below max_loras {loras}")
    dtype = work.flag("lora_dtype")
    work.take("lora", "max_lora_rank", "max_loras", "fully_sharded_loras")
    work.set("lora.max_cpu_loras", on_host or loras)
    work.set("lora.lora_dtype", work.get("model.dtype") if dtype in (None, "auto") else dtype)
    tokens, seqs = work.get("scheduler.max_num_batched_tokens"), work.get("scheduler.max_num_seqs")
    if drafts and tokens < seqs * (drafts + 1):
        raise Refused("config", "adapters with drafts",
                      f"max_num_batched_tokens {tokens} is below max_num_seqs {seqs} x {drafts + 1} with adapters")


def resolve_scheduled_tokens(work: Work, drafts: int) -> None:
    """Set the scheduled tokens of a server with drafts.

    Raises
    ------
    Refused
        No slot is left for a token.
    """
    if not drafts:
        return
    tokens = work.get("scheduler.max_num_batched_tokens")
    if work.get("scheduler.max_num_scheduled_tokens") is None:
        work.set("scheduler.max_num_scheduled_tokens", tokens, "engine", "= max_num_batched_tokens with drafts")
    ahead = drafts if work.get("speculative.method") in ("eagle", "eagle3", "mtp", "draft_model", "dspark") else 0
    ahead += 1 if work.get("speculative.method") == "dflash" else 0
    if tokens <= ahead:
        raise Refused("config", "no slot for a token", f"max_num_batched_tokens {tokens} with {drafts} drafts")
