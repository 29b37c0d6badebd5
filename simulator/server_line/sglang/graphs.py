"""SGLang's CUDA graphs. Source: sglang 0.5.23, sglang/srt/arg_groups/cuda_graph_hook.py, memory_hook.py."""
import json
from typing import Any

from simulator.domain.server_defaults.sglang import IMAGES_IN_GRAPHS, TEXT_BY_DEFAULT, decode_sizes, prefill_sizes
from simulator.server_line.facts.answers import Work
from simulator.server_line.facts.checkpoints import Checkpoint

KEYS = ("backend", "max_bs", "bs", "tc_compiler", "max_context_size", "full_prefill_max_req",
        "full_prefill_prefix_chunk_tokens", "max_seq_len")
LARGEST_LATENT = 8192               # tokens of a prefill graph with latent attention, and with pipeline stages


def resolve_graphs(work: Work, checkpoint: Checkpoint) -> None:
    """Set the backends of both graphs: as given, else by model, role and ranks."""
    for phase, backend in (("decode", "full"), ("prefill", "breakable")):
        given = _given(work, phase)
        off = work.get("disable_cuda_graph") or work.flag(f"disable_{phase}_cuda_graph")
        chosen = given.get("backend") or ("disabled" if off else backend)
        locked = off or "backend" in given
        if phase == "prefill" and not locked and _rules_out(work, checkpoint):
            chosen = "disabled"
        if not locked and work.get("disaggregation_mode") == ("prefill" if phase == "decode" else "decode"):
            chosen = "disabled"
        for key in KEYS:
            work.set(f"cuda_graph_config.{phase}.{key}", given.get(key))
        work.set(f"cuda_graph_config.{phase}.backend", chosen)
        work.set(f"cuda_graph_config.{phase}.tc_compiler", given.get("tc_compiler", "eager"))


def _given(work: Work, phase: str) -> dict[str, Any]:
    table = work.flag("cuda_graph_config") or {}
    table = json.loads(table) if isinstance(table, str) else table
    flags = {"backend": f"cuda_graph_backend_{phase}", "max_bs": f"cuda_graph_max_bs_{phase}",
             "bs": f"cuda_graph_bs_{phase}"}
    if phase == "prefill":
        flags |= {"max_seq_len": "cuda_graph_max_seq_len_prefill", "max_context_size": "cuda_graph_prefill_max_context"}
    return {key: work.flag(flag) for key, flag in flags.items() if work.flag(flag) is not None} | table.get(phase, {})


def takes_images(work: Work, checkpoint: Checkpoint) -> bool:
    """Return whether the server takes images."""
    asked = work.flag("enable_multimodal")
    if work.flag("language_only") or work.flag("language_model_only"):
        return False
    return checkpoint.is_multimodal and (checkpoint.architecture not in TEXT_BY_DEFAULT if asked is None else asked)


def _rules_out(work: Work, checkpoint: Checkpoint) -> bool:
    return (work.get("pp_size") > 1 or work.get("dcp_size") > 1 or work.get("attn_cp_size") > 1
            or bool(work.get("enable_two_batch_overlap"))
            or work.get("moe_a2a_backend") not in ("none", "deepep", "megamoe", "flashinfer")
            or (takes_images(work, checkpoint) and checkpoint.architecture not in IMAGES_IN_GRAPHS))


def resolve_decode_sizes(work: Work, most: int) -> None:
    """Set the sizes of decode graphs."""
    sizes = work.get("cuda_graph_config.decode.bs")
    if sizes is not None:
        work.set("cuda_graph_config.decode.max_bs", max(sizes))
        return
    if work.flag("disable_cuda_graph_padding"):
        sizes = list(range(1, most + 1))
    else:
        sizes = decode_sizes(most, work.get("speculative_algorithm") is not None)
    work.set("cuda_graph_config.decode.bs", sizes)
    work.set("cuda_graph_config.decode.max_bs", most)


def resolve_prefill_sizes(work: Work, checkpoint: Checkpoint) -> None:
    """Set the tokens of prefill graphs: up to a chunk."""
    most = work.get("cuda_graph_config.prefill.max_bs")
    if most is None:
        most = work.get("chunked_prefill_size")
        if checkpoint.is_latent or (work.get("pp_size") > 1
                                    and work.get("cuda_graph_config.prefill.backend") == "breakable"):
            most = min(most, LARGEST_LATENT)
        if work.get("max_total_tokens") is not None:
            most = min(most, work.get("max_total_tokens"))
        if "llama-2" in work.get("model_path").lower():
            most = min(most, 4096)
        work.set("cuda_graph_config.prefill.max_bs", most)
    if work.get("cuda_graph_config.prefill.bs") is None:
        work.set("cuda_graph_config.prefill.bs", prefill_sizes(most))


def align_for_deepep(work: Work) -> None:
    """Round prefill graphs up to multiples of 8, as DeepEP needs."""
    if work.get("moe_a2a_backend") != "deepep" or work.get("cuda_graph_config.prefill.backend") != "breakable":
        return
    given = work.get("cuda_graph_config.prefill.bs")
    sizes = prefill_sizes(work.get("cuda_graph_config.prefill.max_bs") or 2048) if given is None else given
    aligned = sorted({-(-size // 8) * 8 for size in sizes})
    work.set("cuda_graph_config.prefill.bs", aligned)
    work.set("cuda_graph_config.prefill.max_bs", aligned[-1])


def clamp_prefill(work: Work) -> None:
    """Cut prefill graphs to the chunk of one attention rank."""
    chunk, most = work.get("chunked_prefill_size"), work.get("cuda_graph_config.prefill.max_bs")
    if work.get("cuda_graph_config.prefill.backend") == "disabled" or chunk <= 0 or most <= chunk:
        return
    work.set("cuda_graph_config.prefill.max_bs", chunk)
    work.set("cuda_graph_config.prefill.bs", prefill_sizes(chunk))
