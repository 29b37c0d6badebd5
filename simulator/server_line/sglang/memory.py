"""SGLang's share of memory. Source: sglang 0.5.23, sglang/srt/arg_groups/memory_hook.py."""
from simulator.domain.server_defaults.sglang import Server, image_factor, limits_of, reserved_mib, static_share
from simulator.server_line.facts.answers import Work
from simulator.server_line.facts.checkpoints import Checkpoint
from simulator.server_line.sglang import graphs


def resolve_memory(work: Work, checkpoint: Checkpoint) -> None:
    """Set the chunk of prompts, the graphs' sizes and the share of static memory."""
    card, ranks = work.question.card, work.get("tp_size")
    chunk, most = limits_of(card, ranks)
    if work.get("chunked_prefill_size") is None:
        work.set("chunked_prefill_size", chunk, "engine", f"SGLang on {card.short}: {card.memory_mib / 1024:.0f} GiB")
    given = work.get("cuda_graph_config.decode.max_bs")
    if given is None and work.get("max_running_requests") is not None:
        most = min(most, work.get("max_running_requests"))
    graphs.resolve_decode_sizes(work, most if given is None else given)
    graphs.align_for_deepep(work)
    graphs.resolve_prefill_sizes(work, checkpoint)
    if work.get("mem_fraction_static") is None:
        reserved = _reserved_mib(work, checkpoint)
        share = static_share(card, reserved)
        if graphs.takes_images(work, checkpoint) and work.get("disaggregation_mode") != "decode" and checkpoint.vision:
            share *= image_factor(*checkpoint.vision)
        work.set("mem_fraction_static", share, "engine",
                 f"all but {reserved:.0f} MiB of {card.memory_mib}, for activations and graphs")


def _reserved_mib(work: Work, checkpoint: Checkpoint) -> float:
    decode, prefill = work.get("cuda_graph_config.decode"), work.get("cuda_graph_config.prefill")
    return reserved_mib(work.question.card, Server(
        chunk=work.get("chunked_prefill_size"), max_prefill_tokens=work.get("max_prefill_tokens"),
        ranks=work.get("tp_size") * work.get("pp_size"),
        decode_graph=decode["max_bs"] if decode["backend"] != "disabled" else 0, graphs_of_ranks=decode["max_bs"],
        prefill_graphs=len(prefill["bs"]) if prefill["backend"] != "disabled" else 0,
        running=work.get("max_running_requests"), drafts=work.get("speculative_num_draft_tokens") or 1,
        attention_ranks=work.get("attn_dp_size"), is_latent=checkpoint.is_latent,
        role=work.get("disaggregation_mode"), has_deepep=work.get("moe_a2a_backend") == "deepep",
        breaks_prefill=prefill["backend"] == "breakable"))
