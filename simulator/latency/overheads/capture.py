"""Batch sizes for which vLLM captures CUDA graphs, and [engine.cuda_graphs]."""
from itertools import pairwise
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.domain.deployment import Deployment
from simulator.domain.server_defaults.cards import as_card
from simulator.domain.server_defaults.vllm import (
    GPT_OSS_GRAPHS,
    Captured,
    goes_without_graphs,
    graph_sizes,
    is_gpt_oss,
)
from simulator.domain.vllm_versions import behaviour_of
from simulator.latency.overheads.launches import EAGER_US_PER_LAYER

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
        "decode, else piecewise; default: full_and_piecewise, in 0.10 piecewise; none with "
        "deepep_high_throughput"))] = None
    capture_sizes: Annotated[tuple[Tokens, ...], Meta(extra={"unit": "tokens"}, description=(
        "captured batch sizes, ascending; empty: vLLM's own"))] = ()
    piecewise_us_per_layer: Annotated[Price, Meta(description=(
        "time per layer added to a batch with piecewise graphs"))] = 0.0
    eager_us_per_layer: Annotated[Price | None, Meta(description=EAGER_US_PER_LAYER)] = None
    memory_gib: Annotated[Annotated[float, Meta(ge=0, le=1024)] | None, Meta(extra={"unit": "GiB"}, description=(
        "vLLM's estimate of the memory of the graphs, which it takes off before it counts KV blocks; its start-up log "
        "has it; 0: VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0; default: 0.29 MiB for each layer in each graph, the "
        "median of 17 logs that lie up to 5 times above or below"))] = None

    def __post_init__(self):
        sizes = self.capture_sizes
        if any(after <= before for before, after in pairwise(sizes)):
            raise ValueError(f"capture_sizes: {list(sizes)} do not ascend")
        if self.mode == "none" and sizes:
            raise ValueError('capture_sizes: there are none with mode = "none"')
        if self.mode == "none" and self.memory_gib:
            raise ValueError('memory_gib: expected 0 or none: there are no graphs with mode = "none"')


def sizes_of(parameters, query_tokens: int, is_newest_card: bool, is_gpt_oss: bool = False) -> list[int]:
    """Return the captured sizes, given or vLLM's.

    parameters : VllmParameters. query_tokens : of a decoding sequence, 1 + drafts.
    is_newest_card : compute capability 10.x.
    """
    given = parameters.cuda_graphs.capture_sizes if parameters.cuda_graphs is not None else ()
    behaviour = behaviour_of(parameters.vllm_version)
    most = GPT_OSS_GRAPHS if is_gpt_oss and behaviour.widens_gpt_oss else None
    return list(given) or graph_sizes(Captured(
        parameters.max_num_batched_tokens, parameters.max_num_seqs, query_tokens, most), behaviour, is_newest_card)


def num_graphs(parameters, deployment: Deployment | None) -> int:
    """Return how many graphs vLLM captures: of whole iterations and of pieces.

    Whole iterations in which all sequences decode have the tokens of one to max_num_seqs sequences with their drafts;
    with LoRA there is a second graph of each, with adapters.
    Source: vLLM 0.33.0, vllm/v1/cudagraph_dispatcher.py (initialize_cudagraph_keys).
    """
    query_tokens = 1 + (parameters.speculative.num_tokens if parameters.speculative is not None else 0)
    mode = (parameters.cuda_graphs and parameters.cuda_graphs.mode) or behaviour_of(parameters.vllm_version).graph_mode
    if mode == "none" or goes_without_graphs(deployment):
        return 0
    sizes = sizes_of(parameters, query_tokens, *card_and_model(deployment))
    decoding = sum(query_tokens <= size <= parameters.max_num_seqs * query_tokens for size in sizes)
    of_mode = {"piecewise": len(sizes), "full": len(sizes), "full_decode_only": decoding}
    return of_mode.get(mode, len(sizes) + decoding) * (1 + (parameters.lora is not None))


def card_and_model(deployment: Deployment | None) -> tuple[bool, bool]:
    """Return whether the card is of capability 10.x; whether the model is gpt-oss."""
    if deployment is None:
        return False, False
    card = deployment.accelerator and as_card(deployment.accelerator)
    return card is not None and card.major == 10, is_gpt_oss(deployment.model)
