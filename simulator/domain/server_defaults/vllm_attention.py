"""The attention backend of vLLM on a card, and the block sizes that it implies.

Sources: vLLM 0.32.0 and 0.33.0, vllm/platforms/cuda.py (priorities), vllm/platforms/interface.py (block sizes),
vllm/v1/attention/backends; 0.10.1, vllm/platforms/cuda.py (blocks of latent attention).
"""
from typing import NamedTuple

from simulator.domain.server_defaults.cards import Card
from simulator.domain.vllm_versions import VllmBehaviour

HALF = ("float16", "bfloat16")
PLAIN = ("auto", *HALF)
FP8 = ("fp8", "fp8_e4m3")
DEFAULT_BLOCK = 16
FORCED_LATENT_BLOCKS = {9: 64, 10: 128}     # FLASHMLA, CUTLASS_MLA


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


class Shape(NamedTuple):
    """The facts of a model and its cache that its attention backend depends on.

    head : size of a head in the cache. block : as given; None: left out. sees_images : image tokens see each other.
    shares_context : decode context parallelism is above 1.
    """

    dtype: str
    kv_dtype: str
    head: int
    block: int | None = None
    is_latent: bool = False
    is_sparse: bool = False
    has_sinks: bool = False
    sees_images: bool = False
    shares_context: bool = False


def candidates(card: Card, is_latent: bool) -> tuple[str, ...]:
    """Return the backends that are tried on a card, the first choice first."""
    if is_latent:
        return LATENT.get(card.major, LATENT[9])
    return NEWEST if card.major == 10 else OTHERS


def takes(name: str, card: Card, shape: Shape, behaviour: VllmBehaviour) -> bool:
    """Return whether a backend takes the shapes and the cache's type on the card."""
    backend = BACKENDS[name]
    return (
        (not backend.majors or card.major in backend.majors) and card.major >= 8
        and shape.dtype in backend.dtypes and shape.kv_dtype in backend.kv_dtypes
        and (shape.block is None or any(shape.block % size == 0 for size in backend.blocks))
        and (shape.head in backend.heads if backend.heads else
             shape.head % 8 == 0 and shape.head <= backend.largest_head)
        and (not shape.is_latent or backend.sparse == shape.is_sparse)
        and (not shape.sees_images or _takes_images(name, card, behaviour))
        and (not shape.has_sinks or _takes_sinks(name, shape.kv_dtype, card.major))
        and _takes_combination(name, card.major, shape))


def _takes_images(name: str, card: Card, behaviour: VllmBehaviour) -> bool:
    """Return whether image tokens may see each other: FlashAttention 4 does since 0.33, on 10.x."""
    return BACKENDS[name].images or (name == "FLASH_ATTN" and card.major == 10 and behaviour.images_on_flash)


def _takes_sinks(name: str, kv_dtype: str, major: int) -> bool:
    if name == "FLASHINFER":
        return major in (10, 12) and not (major == 12 and kv_dtype.startswith("nvfp4"))
    return name == "TRITON_ATTN" or (name == "FLASH_ATTN" and major in (9, 10))


def _takes_combination(name: str, major: int, shape: Shape) -> bool:
    if name == "FLASH_ATTN" and shape.kv_dtype in FP8:
        return major in (9, 10)
    if name == "FLASHINFER" and shape.kv_dtype.startswith("nvfp4") and major != 10:
        return shape.kv_dtype == "nvfp4" and shape.head != 64
    if name == "FLASH_ATTN_MLA_SPARSE":
        return not shape.shares_context
    return True


def backend_of(card: Card, shape: Shape, behaviour: VllmBehaviour) -> str | None:
    """Return the backend that a server chooses.

    None: none takes the shapes, or it is not known: kernels of latent attention on compute capability 10.x can be
    asked on such a card alone.
    """
    if shape.is_latent and card.major == 10:
        return None
    return next((name for name in candidates(card, shape.is_latent) if takes(name, card, shape, behaviour)), None)


def block_of(name: str, block: int = DEFAULT_BLOCK) -> int:
    """Return a default block as a backend takes it.

    It is raised to the smallest block of the backend's kernels unless it is a multiple of one.
    """
    sizes = BACKENDS[name].blocks
    return min(sizes) if all(block % size for size in sizes) else block
