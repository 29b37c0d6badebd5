"""The attention backend of vLLM on a card, and the block sizes that it implies.

Sources: vLLM 0.32.0 and 0.33.0, vllm/platforms/cuda.py (priorities), vllm/platforms/interface.py (block sizes),
vllm/v1/attention/backends.
"""
from typing import NamedTuple

from simulator.server_line.facts.answers import Work
from simulator.server_line.facts.checkpoints import Checkpoint
from simulator.server_line.vllm.rules import RULES

HALF = ("float16", "bfloat16")
PLAIN = ("auto", *HALF)
FP8 = ("fp8", "fp8_e4m3")
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
DEFAULT_BLOCK = 16


class Backend(NamedTuple):
    """Shapes that a backend takes.

    majors : major compute capabilities, (): all from 8. kv_dtypes : of the cache. blocks : its kernels' block sizes,
    of which a block is a multiple. heads : sizes, (): multiples of 8 up to 256.
    """

    kv_dtypes: tuple[str, ...]
    blocks: tuple[int, ...] = (16,)
    majors: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = HALF
    heads: tuple[int, ...] = ()
    largest_head: int = 256
    sparse: bool = False
    images: bool = False


BACKENDS = {
    "FLASH_ATTN": Backend((*PLAIN, *FP8)),
    "FLASHINFER": Backend((*PLAIN, *FP8, "fp8_e5m2", "nvfp4", "nvfp4_4over6"), (16, 32, 64), heads=(64, 128, 256, 512)),
    "TRITON_ATTN": Backend((*PLAIN, *FP8, "fp8_e5m2", "int4_per_token_head", "int8_per_token_head",
                            "fp8_per_token_head"), dtypes=(*HALF, "float32"), largest_head=10**6, images=True),
    "FLEX_ATTENTION": Backend(PLAIN, dtypes=(*HALF, "float32"), largest_head=10**6, images=True),
    "TURBOQUANT": Backend(("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"),
                          largest_head=10**6),
    "FLASH_ATTN_MLA": Backend(PLAIN, majors=(9,), largest_head=576),
    "FLASHMLA": Backend((*PLAIN, *FP8), (64,), (9, 10), largest_head=576),
    "FLASHINFER_MLA": Backend((*PLAIN, *FP8), (32, 64), (10,), largest_head=576),
    "TRITON_MLA": Backend((*PLAIN, *FP8), largest_head=10**6),
    "FLASH_ATTN_MLA_SPARSE": Backend(PLAIN, (64,), (9,), largest_head=576, sparse=True),
    "FLASHMLA_SPARSE": Backend(("auto", "bfloat16", "fp8_ds_mla", "fp8", "nvfp4_ds_mla"), (64,), (9, 10), ("bfloat16",),
                               (512, 576), sparse=True),
    "FLASHINFER_MLA_SPARSE_SM120": Backend(("auto", *FP8, "fp8_ds_mla"), (64,), (12,), ("bfloat16",), (576,),
                                           sparse=True),
}
LATENT = {9: ("FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA", "FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE"),
          12: ("TRITON_MLA", "FLASHINFER_MLA_SPARSE_SM120")}
OTHERS = ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT")
NEWEST = ("FLASHINFER", "FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT")


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
    candidates = (asked,) if asked else _candidates(work, checkpoint)
    chosen = next((name for name in candidates if name in BACKENDS and _takes(name, work, checkpoint)), None)
    if chosen is None:
        work.notes.append("no attention backend takes these shapes: the server dies while it loads")
        return
    work.set("attention_backend", chosen, *(("flag", "--attention-backend") if asked else (
        "engine", f"the first that takes the shapes on compute capability {work.question.card.major}.x")))
    _resolve_blocks(work, checkpoint, BACKENDS[chosen])


def _candidates(work: Work, checkpoint: Checkpoint) -> tuple[str, ...]:
    major = work.question.card.major
    if checkpoint.is_latent:
        return LATENT.get(major, LATENT[9])
    return NEWEST if major == 10 else OTHERS


def _takes(name: str, work: Work, checkpoint: Checkpoint) -> bool:
    """Return whether a backend takes the model's shapes and the cache's type on the card."""
    backend, card, kv_dtype = BACKENDS[name], work.question.card, work.get("cache.cache_dtype")
    block = work.get("cache.block_size") if work.get("cache.user_specified_block_size") else None
    head = checkpoint.head_size
    return (
        (not backend.majors or card.major in backend.majors) and card.major >= 8
        and work.get("model.dtype") in backend.dtypes and kv_dtype in backend.kv_dtypes
        and (block is None or any(block % size == 0 for size in backend.blocks))
        and (head in backend.heads if backend.heads else head % 8 == 0 and head <= backend.largest_head)
        and (not checkpoint.is_latent or backend.sparse == checkpoint.is_sparse)
        and (not checkpoint.bidirectional_images or _takes_images(name, backend, work))
        and (not checkpoint.has_sinks or _takes_sinks(name, kv_dtype, card.major))
        and _takes_combination(name, kv_dtype, head, card.major, work))


def _takes_images(name: str, backend: Backend, work: Work) -> bool:
    """Return whether image tokens may see each other: FlashAttention 4 does since 0.33, on 10.x."""
    return backend.images or (name == "FLASH_ATTN" and work.question.card.major == 10
                              and RULES[work.question.version].images_on_flash)


def _takes_sinks(name: str, kv_dtype: str, major: int) -> bool:
    if name == "FLASHINFER":
        return major in (10, 12) and not (major == 12 and kv_dtype.startswith("nvfp4"))
    return name == "TRITON_ATTN" or (name == "FLASH_ATTN" and major in (9, 10))


def _takes_combination(name: str, kv_dtype: str, head: int, major: int, work: Work) -> bool:
    if name == "FLASH_ATTN" and kv_dtype in FP8:
        return major in (9, 10)
    if name == "FLASHINFER" and kv_dtype.startswith("nvfp4") and major != 10:
        return kv_dtype == "nvfp4" and head != 64
    if name == "FLASH_ATTN_MLA_SPARSE":
        return work.get("parallel.decode_context_parallel_size") == 1
    return True


def _resolve_blocks(work: Work, checkpoint: Checkpoint, backend: Backend) -> None:
    block = work.get("cache.block_size")
    if not work.get("cache.user_specified_block_size") and all(block % size for size in backend.blocks):
        block = min(backend.blocks)
    mamba, padded = work.get("cache.mamba_block_size"), None
    if checkpoint.is_hybrid:
        block, padded = _aligned(work, checkpoint, block, min(backend.blocks))
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
