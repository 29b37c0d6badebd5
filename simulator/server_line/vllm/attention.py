"""The attention backend of vLLM on a card, and the block sizes that it implies, from a command line.

The rules are in simulator/domain/server_defaults/vllm_attention.py. Source of the alignment of hybrids: vLLM 0.32.0 and
0.33.0, vllm/platforms/interface.py.
"""
from simulator.domain.server_defaults.vllm_attention import (
    BACKENDS,
    Shape,
    block_of,
    candidates,
    takes,
)
from simulator.domain.vllm_versions import behaviour_of
from simulator.server_line.facts.answers import Work
from simulator.server_line.facts.checkpoints import Checkpoint

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def resolve_attention(work: Work, checkpoint: Checkpoint) -> None:
    """Set the backend, and the block sizes after loading.

    Neither is set for pooling, or where no backend takes the shapes. Latent attention on
    compute capability 10.x is left open: its kernels can be asked on such a card alone.
    """
    if work.get("model.runner_type") == "pooling":
        return
    if checkpoint.is_latent and work.question.card.major == 10:
        work.notes.append("the backend of latent attention on compute capability 10.x is not known here")
        return
    asked = work.flag("attention_backend") or (work.flag("attention_config") or {}).get("backend")
    asked = str(asked).upper() if asked not in (None, "auto") else None
    card, behaviour = work.question.card, behaviour_of(work.question.version)
    chosen = next((name for name in ((asked,) if asked else candidates(card, checkpoint.is_latent))
                   if name in BACKENDS and takes(name, card, _shape_of(work, checkpoint), behaviour)), None)
    if chosen is None:
        work.notes.append("no attention backend takes these shapes: the server dies while it loads")
        return
    work.set("attention_backend", chosen, *(("flag", "--attention-backend") if asked else (
        "engine", f"the first that takes the shapes on compute capability {work.question.card.major}.x")))
    _resolve_blocks(work, checkpoint, chosen)


def _shape_of(work: Work, checkpoint: Checkpoint) -> Shape:
    return Shape(
        dtype=work.get("model.dtype"), kv_dtype=work.get("cache.cache_dtype"), head=checkpoint.head_size,
        block=work.get("cache.block_size") if work.get("cache.user_specified_block_size") else None,
        is_latent=checkpoint.is_latent, is_sparse=checkpoint.is_sparse, has_sinks=checkpoint.has_sinks,
        sees_images=checkpoint.bidirectional_images,
        shares_context=work.get("parallel.decode_context_parallel_size") > 1)


def _resolve_blocks(work: Work, checkpoint: Checkpoint, name: str) -> None:
    block = work.get("cache.block_size")
    block = block if work.get("cache.user_specified_block_size") else block_of(name, block)
    mamba, padded = work.get("cache.mamba_block_size"), None
    if checkpoint.is_hybrid:
        block, padded = _aligned(work, checkpoint, block, min(BACKENDS[name].blocks))
        mamba = block if work.get("cache.mamba_cache_mode") == "align" else mamba
    why = "a page of states fits into a block" if checkpoint.is_hybrid else "a block that the backend takes"
    work.set("after_load.block_size", block, "engine", why)
    work.set("after_load.mamba_block_size", mamba)
    work.set("after_load.mamba_page_size_padded", padded)
    work.set("after_load.mamba_cache_mode", work.get("cache.mamba_cache_mode"))


def _aligned(work: Work, checkpoint: Checkpoint, block: int, kernel: int) -> tuple[int, int | None]:
    """Return the block with an attention page no smaller than a state; the padded page if it is larger."""
    tensor, dtype = work.get("parallel.tensor_parallel_size"), BYTES[work.get("model.dtype")]
    kv_dtype = work.get("cache.cache_dtype")
    width = BYTES.get(kv_dtype, dtype if kv_dtype == "auto" else 1)
    token = 2 * work.get("model.num_kv_heads_per_gpu") * checkpoint.head_size * width
    state = checkpoint.state
    drafts = work.values.get("speculative", {}).get("num_speculative_tokens", 0)
    conv, matrices = (BYTES.get(work.get(f"cache.{key}"), dtype) for key in ("mamba_cache_dtype",
                                                                             "mamba_ssm_cache_dtype"))
    page = ((state.conv_kernel - 1 + drafts) * state.conv_channels // tensor * conv
            + state.matrices // tensor * matrices)
    step = max(kernel, block)
    aligned = max(block, -(-page // (step * token)) * step)
    return aligned, aligned * token if aligned * token != page else None
