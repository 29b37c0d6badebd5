"""SGLang's share of memory. Source: sglang 0.5.23, sglang/srt/arg_groups/memory_hook.py."""
from simulator.server_line.facts.answers import Work
from simulator.server_line.facts.checkpoints import Checkpoint
from simulator.server_line.sglang import graphs

LARGE_MIB = 60 * 1024
LEAST_RESERVED_MIB = 10 * 1024
VIT_LARGE = 24 * 1024**2            # layers x width squared


def resolve_memory(work: Work, checkpoint: Checkpoint) -> None:
    """Set the chunk of prompts, the graphs' sizes and the share of static memory."""
    card, ranks = work.question.card, work.get("tp_size")
    chunk, most = graphs.limits_of(card, ranks)
    if work.get("chunked_prefill_size") is None:
        work.set("chunked_prefill_size", chunk, "engine", f"SGLang on {card.short}: {card.memory_mib / 1024:.0f} GiB")
    given = work.get("cuda_graph_config.decode.max_bs")
    if given is None and work.get("max_running_requests") is not None:
        most = min(most, work.get("max_running_requests"))
    graphs.resolve_decode_sizes(work, most if given is None else given)
    graphs.align_for_deepep(work)
    graphs.resolve_prefill_sizes(work, checkpoint)
    if work.get("mem_fraction_static") is None:
        total, reserved = card.memory_mib, _reserved_mib(work, checkpoint)
        share = round((total - reserved) / total, 3)
        if graphs.takes_images(work, checkpoint) and work.get("disaggregation_mode") != "decode" and checkpoint.vision:
            layers, width = checkpoint.vision
            share *= 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (layers * width**2 / VIT_LARGE - 1.0)))
        work.set("mem_fraction_static", share, "engine",
                 f"all but {reserved:.0f} MiB of {total}, for activations and graphs")


def _reserved_mib(work: Work, checkpoint: Checkpoint) -> float:
    chunk = work.get("chunked_prefill_size")
    if work.get("disaggregation_mode") == "decode":
        running = work.get("max_running_requests") or work.get("cuda_graph_config.decode.max_bs") or 1
        chunk = running * (work.get("speculative_num_draft_tokens") or 1)
    elif chunk <= 0:
        chunk = work.get("max_prefill_tokens")
    reserved = 512 + 1.5 * max(chunk, 2048) + 128 * work.get("tp_size") * work.get("pp_size")
    reserved += _of_graphs(work, checkpoint)
    if work.question.card.memory_mib > LARGE_MIB:
        reserved = max(reserved, LEAST_RESERVED_MIB)
    if work.get("moe_a2a_backend") == "deepep" and work.get("disaggregation_mode") != "prefill" and (
            work.get("cuda_graph_config.decode.backend") != "disabled"):
        reserved += 2048
    return reserved


def _of_graphs(work: Work, checkpoint: Checkpoint) -> float:
    decode, prefill = work.get("cuda_graph_config.decode"), work.get("cuda_graph_config.prefill")
    role, ranks = work.get("disaggregation_mode"), work.get("attn_dp_size")
    reserved = 0.0
    if role != "prefill":
        reserved += 2 * decode["max_bs"] if decode["backend"] != "disabled" else 0
        if ranks > 1:
            reserved += decode["max_bs"] * ranks * (4.5 if decode["max_bs"] > 300 else 3)
    if role != "decode" and prefill["backend"] != "disabled":
        reserved += 1536 if checkpoint.is_latent else 8 * len(prefill["bs"])
        if prefill["backend"] == "breakable" and work.get("moe_a2a_backend") == "deepep":
            reserved += 1024
    return reserved
