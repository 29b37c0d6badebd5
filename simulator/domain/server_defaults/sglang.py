"""SGLang's defaults by card: chunks of prompts, CUDA graphs, pages, the share of static memory, running requests.

Source: sglang 0.5.23, sglang/srt/arg_groups (cuda_graph_hook.py, memory_hook.py, overrides.py) and
sglang/srt/model_executor (running requests).
"""
from typing import NamedTuple

from simulator.domain.server_defaults.cards import GIB, MIB, Card

# GiB of memory below which -> chunk of prompts, decode graphs on few and on 4 or more ranks.
BY_MEMORY = ((20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (90, 8192, 256, 512), (160, 8192, 256, 512))
BEYOND = (16384, 512, 512)
LARGE_MIB = 60 * 1024
LEAST_RESERVED_MIB = 10 * 1024
# Backend -> page that it takes by default, and all pages that it takes; other backends take pages of any size.
PAGES = {"flashmla": (64, (64,)), "trtllm_mla": (64, (32, 64)), "cutedsl_mla": (64, (32, 64)),
         "trtllm_mha": (64, (16, 32, 64, 128)), "dsa": (64, (64,))}
LEAST_RUNNING, MOST_RUNNING, RUNNING_PER_CONTEXT = 2048, 4096, 512
# Families with images that take prefill graphs all the same (sglang/srt/configs/model_config.py).
IMAGES_IN_GRAPHS = (
    "MiniMaxM3SparseForConditionalGeneration", "Cohere2VisionForConditionalGeneration",
    "Glm5NextForConditionalGeneration", "PaddleOCRVLForConditionalGeneration", "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration", "Qwen4ExpForConditionalGeneration", "KimiK25ForConditionalGeneration",
    "KimiK3ForConditionalGeneration")
# Families that the engine serves as text alone unless --enable-multimodal is given.
TEXT_BY_DEFAULT = ("Gemma3ForConditionalGeneration", "Llama4ForConditionalGeneration",
                   "Step3VLForConditionalGeneration", "InklingForConditionalGeneration")
VIT_LARGE = 24 * 1024**2            # layers x width squared of ViT-L, the norm of towers
CONSERVATIVENESS_OF_RANKS = 0.3     # factor of schedule_conservativeness with attention in data-parallel ranks


def limits_of(card: Card, ranks: int) -> tuple[int, int]:
    """Return the chunk of prompts, and the largest decode graph, of a card."""
    for gib, chunk, few, many in BY_MEMORY:
        if card.memory_mib * MIB < gib * GIB:
            return chunk, many if ranks >= 4 else few
    return BEYOND[0], BEYOND[1]


def prefill_sizes(most: int) -> list[int]:
    """Return the tokens of prefill graphs."""
    sizes = (*range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64),
             *range(1280, 4097, 256), *range(4608, most + 1, 512))
    return [size for size in sizes if size <= most]


def decode_sizes(most: int, has_drafts: bool = False) -> list[int]:
    """Return the sequences of decode graphs, up to the largest.

    has_drafts : the server verifies drafts, with finer sizes.
    """
    if has_drafts:
        sizes = (*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, most + 1, 16))
    else:
        sizes = (1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, most + 1, 32))
    sizes = [size for size in sizes if size <= most]
    return sizes if most in sizes else [*sizes, most]


class Server(NamedTuple):
    """The options of a server that its static memory depends on.

    chunk : chunked_prefill_size of all attention ranks together; 0 or less: prompts are not cut.
    running : max_running_requests; None: left out. drafts : draft tokens of a request; 1: none.
    ranks : tensor-parallel x pipeline-parallel. attention_ranks : data-parallel ranks of attention.
    decode_graph : sequences of the largest decode graph; 0: there are none.
    prefill_graphs : number of prefill graphs; 0: there are none. is_latent : multi-head latent attention.
    breaks_prefill : prefill graphs are broken at attention.
    """

    chunk: int
    max_prefill_tokens: int
    ranks: int
    decode_graph: int
    prefill_graphs: int
    running: int | None = None
    drafts: int = 1
    attention_ranks: int = 1
    is_latent: bool = False
    role: str = "both"
    has_deepep: bool = False
    breaks_prefill: bool = True
    graphs_of_ranks: int = 0        # decode_graph, also where decode graphs are off


def reserved_mib(card: Card, server: Server) -> float:
    """Return the memory, MiB, that a server leaves for activations and graphs."""
    chunk = server.chunk
    if server.role == "decode":
        chunk = (server.running or server.graphs_of_ranks or 1) * server.drafts
    elif chunk <= 0:
        chunk = server.max_prefill_tokens
    reserved = 512 + 1.5 * max(chunk, 2048) + 128 * server.ranks + _of_graphs(server)
    if card.memory_mib > LARGE_MIB:
        reserved = max(reserved, LEAST_RESERVED_MIB)
    return reserved + (2048 if server.has_deepep and server.role != "prefill" and server.decode_graph else 0)


def _of_graphs(server: Server) -> float:
    reserved, most = 0.0, server.graphs_of_ranks
    if server.role != "prefill":
        reserved += 2 * server.decode_graph
        if server.attention_ranks > 1:
            reserved += most * server.attention_ranks * (4.5 if most > 300 else 3)
    if server.role != "decode" and server.prefill_graphs:
        reserved += 1536 if server.is_latent else 8 * server.prefill_graphs
        reserved += 1024 if server.breaks_prefill and server.has_deepep else 0
    return reserved


def static_share(card: Card, reserved: float) -> float:
    """Return mem_fraction_static: the share of memory that is not reserved."""
    return round((card.memory_mib - reserved) / card.memory_mib, 3)


def image_factor(num_layers: int, width: int) -> float:
    """Return the factor of mem_fraction_static of a server with this tower."""
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (num_layers * width**2 / VIT_LARGE - 1.0)))


class Shapes(NamedTuple):
    """The facts of a model that its attention backend depends on."""

    is_sparse: bool = False
    is_latent: bool = False
    is_gpt_oss: bool = False
    is_deepseek_v3: bool = False


def backend_of(card: Card, shapes: Shapes) -> str:
    """Return the attention backend of a model on a card."""
    major = card.major
    if shapes.is_sparse:
        return "dsa"
    if shapes.is_gpt_oss:
        return {9: "fa3", 10: "trtllm_mha"}.get(major, "triton")
    if shapes.is_latent:
        if major == 10 and shapes.is_deepseek_v3:
            return "trtllm_mla"
        return {9: "fa3", 10: "flashinfer"}.get(major, "triton")
    return {9: "fa3", 10: "trtllm_mha"}.get(major, "flashinfer")


def running_requests(tokens: int | None, max_model_len: int | None) -> int:
    """Return max_running_requests of a rank with KV for so many tokens.

    None: not known; then the least number of a large pool is returned.
    """
    if tokens is None or max_model_len is None:
        return LEAST_RUNNING
    by_context = int(tokens / max_model_len * RUNNING_PER_CONTEXT)
    return max(min(max(by_context, LEAST_RUNNING), MOST_RUNNING, tokens // 2), 1)
