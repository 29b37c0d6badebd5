"""Batch sizes for which vLLM captures CUDA graphs, and [engine.cuda_graphs]."""
from itertools import pairwise
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.domain.vllm_versions import behaviour_of

Tokens = Annotated[int, Meta(ge=1, le=2**20)]
Price = Annotated[float, Meta(ge=0, le=1e9)]
Mode = Literal["none", "piecewise", "full", "full_decode_only", "full_and_piecewise"]


class CudaGraphParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CUDA graphs, [engine.cuda_graphs].

    A batch is padded to the next captured size; above the largest its kernels are launched one by one, unpadded.
    """

    mode: Annotated[Mode | None, Meta(description=(
        "graphs per batch. none: no graphs, vLLM's enforce_eager; piecewise: between attention layers; full: whole "
        "iterations; full_decode_only: whole if all sequences decode, else none; full_and_piecewise: whole if all "
        "decode, else piecewise; default: full_and_piecewise in 0.32, piecewise in 0.10"))] = None
    capture_sizes: Annotated[tuple[Tokens, ...], Meta(extra={"unit": "tokens"}, description=(
        "captured batch sizes, ascending; empty: vLLM's own"))] = ()
    piecewise_us_per_layer: Annotated[Price, Meta(description=(
        "time per layer added to a batch with piecewise graphs"))] = 0.0
    eager_us_per_layer: Annotated[Price | None, Meta(description=(
        "minimum time per layer of a batch without graphs, whose kernels are launched one by one; default: with mode = "
        "\"none\", vLLM's enforce_eager, 45.4 us per kernel of a layer if the backend composes iterations of kernels, "
        "see latency/overheads/launches.py; else 0"))] = None

    memory_gib: Annotated[Annotated[float, Meta(ge=0, le=1024)] | None, Meta(extra={"unit": "GiB"}, description=(
        "vLLM's estimate of the memory of the graphs, which it takes off before it counts KV blocks; its start-up log "
        "has it; 0: VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0; default: 0.5, a guess"))] = None

    def __post_init__(self):
        sizes = self.capture_sizes
        if any(after <= before for before, after in pairwise(sizes)):
            raise ValueError(f"capture_sizes: {list(sizes)} do not ascend")
        if self.mode == "none" and sizes:
            raise ValueError('capture_sizes: there are none with mode = "none"')
        if self.mode == "none" and self.memory_gib:
            raise ValueError('memory_gib: expected 0 or none: there are no graphs with mode = "none"')


def largest_size(parameters, query_tokens: int, is_newest_hardware: bool) -> int:
    """Return the tokens of the largest batch with a graph.

    parameters : VllmParameters. query_tokens : of a decoding sequence, 1 + drafts.
    is_newest_hardware : compute capability 10.x.

    Source: vLLM 0.32.0, vllm/config/vllm.py, class VllmConfig; also 0.10.1, but without drafts.
    """
    behaviour = behaviour_of(parameters.vllm_version)
    tokens = query_tokens if behaviour.graphs_count_drafts else 1
    return min(2 * parameters.max_num_seqs * tokens,
               behaviour.largest_graph_newest if is_newest_hardware else behaviour.largest_graph,
               parameters.max_num_batched_tokens)


def default_sizes(parameters, query_tokens: int, is_newest_hardware: bool) -> list[int]:
    """Return the sizes that vLLM captures, ascending.

    1, 2, 4, multiples of 8 up to 248, and of 16 from 256 on; in 0.10 all multiples of 8. Arguments and
    source as in `largest_size`. For
    decoding sequences with drafts there are also the sizes of equally many sequences.
    """
    largest = largest_size(parameters, query_tokens, is_newest_hardware)
    step = behaviour_of(parameters.vllm_version).graph_step
    sizes = {1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, step)}
    if query_tokens > 1:
        sizes |= {query_tokens * count for count in sizes}
    if parameters.max_num_batched_tokens == largest:
        sizes.add(largest)
    return sorted(size for size in sizes if size <= largest)


def sizes_of(parameters, query_tokens: int, is_newest_hardware: bool) -> list[int]:
    """Return the captured sizes, given or vLLM's; arguments as in `largest_size`."""
    given = parameters.cuda_graphs.capture_sizes if parameters.cuda_graphs is not None else ()
    return list(given) or default_sizes(parameters, query_tokens, is_newest_hardware)
