"""For which batches vLLM captures CUDA graphs."""
from itertools import pairwise
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Tokens = Annotated[int, Meta(ge=1, le=2**20)]
Price = Annotated[float, Meta(ge=0, le=1e9)]
Mode = Literal["none", "piecewise", "full", "full_decode_only", "full_and_piecewise"]


class CudaGraphParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CUDA graphs, [engine.cuda_graphs].

    A batch is padded to the next captured size; above the largest its kernels are launched one by one, unpadded.
    """

    mode: Annotated[Mode | None, Meta(description=(
        "none at all, vLLM's enforce_eager; between attention layers; whole; whole where all sequences decode, else "
        "none; whole where all decode, else piecewise; default: full_and_piecewise in 0.32, piecewise in 0.10"))] = None
    capture_sizes: Annotated[tuple[Tokens, ...], Meta(extra={"unit": "tokens"}, description=(
        "of graphs, ascending; empty: vLLM's own"))] = ()
    piecewise_us_per_layer: Annotated[Price, Meta(description="added to a batch of piecewise graphs")] = 0.0
    eager_us_per_layer: Annotated[Price | None, Meta(description=(
        "a batch without graphs takes at least that long for each layer: its kernels are launched one by one; default: "
        "with mode = \"none\", vLLM's enforce_eager, 45.4 us for each kernel of a layer where the backend composes "
        "iterations of kernels, see latency/around/launches.py; else 0"))] = None

    def __post_init__(self):
        sizes = self.capture_sizes
        if any(after <= before for before, after in pairwise(sizes)):
            raise ValueError(f"capture_sizes: {list(sizes)} do not ascend")
        if self.mode == "none" and sizes:
            raise ValueError('capture_sizes: there are none with mode = "none"')


def largest_size(parameters, query_tokens: int, is_newest_hardware: bool) -> int:
    """Return the tokens of the largest batch that has a graph.

    parameters : VllmParameters. query_tokens : of a decoding sequence, 1 + drafts.
    is_newest_hardware : compute capability 10.x.

    Source: vLLM 0.32.0, vllm/config/vllm.py, class VllmConfig; 0.10.1 likewise, without drafts.
    """
    if parameters.vllm_version == "0.10":
        return min(2 * parameters.max_num_seqs, 512, parameters.max_num_batched_tokens)
    return min(2 * parameters.max_num_seqs * query_tokens, 1024 if is_newest_hardware else 512,
               parameters.max_num_batched_tokens)


def default_sizes(parameters, query_tokens: int, is_newest_hardware: bool) -> list[int]:
    """Return the sizes that vLLM captures, ascending.

    1, 2, 4, each eighth up to 248, and each sixteenth from 256 on; each eighth all the way in 0.10. Arguments and
    source are those of `largest_size`. Batches of
    decoding sequences with drafts have sizes for as many sequences besides.
    """
    largest = largest_size(parameters, query_tokens, is_newest_hardware)
    wide = 16 if parameters.vllm_version != "0.10" else 8
    sizes = {1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, wide)}
    if query_tokens > 1:
        sizes |= {query_tokens * count for count in sizes}
    if parameters.max_num_batched_tokens == largest:
        sizes.add(largest)
    return sorted(size for size in sizes if size <= largest)


def sizes_of(parameters, query_tokens: int, is_newest_hardware: bool) -> list[int]:
    """Return the captured sizes: given ones, or vLLM's; as `largest_size`."""
    given = parameters.cuda_graphs.capture_sizes if parameters.cuda_graphs is not None else ()
    return list(given) or default_sizes(parameters, query_tokens, is_newest_hardware)
