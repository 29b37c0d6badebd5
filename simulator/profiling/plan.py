"""Points to measure: the rows that a model needs in the tables, without their times.

Sites (products, heads, widths) are the look-ups of the backend `operators`; sizes are points of its interpolation:
about two an octave where kernels change, contexts at powers of two.
"""
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from simulator.domain.model_spec import ModelSpec

ATTENTION = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "attn_dtype", "kv_cache_dtype",
             "step", "window_size")
# The columns that identify a row of a table, in the order in which tables are measured.
KEYS = {
    "host": ("operation", "num_kernels"),
    "small": ("operator", "elements", "num_tokens"),
    "gemm": ("gemm_dtype", "m", "n", "k"),
    "scale_matrix": ("m", "k"),
    "generation_attention": ATTENTION,
    "context_attention": ATTENTION,
    "moe": ("moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size",
            "distribution"),
    "nccl": ("collective", "nccl_dtype", "num_gpus", "message_size")}
NO_KERNEL = "no kernel of this package"
MEASURED_KIND = "multi_head"                # profile key of the attention that kernels here compute
MEASURED_FORMATS = ("bfloat16", "fp8")      # of products; there is no kernel for others in this package
EXPERT_FORMATS = {"torch": ("bfloat16",), "vllm": ("bfloat16", "fp8")}      # source of kernels -> formats of experts
# Names in `operators` -> names in tables of NCCL.
COLLECTIVES = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
               "all_to_all": "alltoall"}
MAX_PROMPT_TOKENS = 131_072                 # of all prompts of a point together
MAX_CONTEXT_TOKENS = 1 << 24                # of all sequences of a point together: 64 GiB of one layer's KV, 1 head
GRID_WIDTHS = (1024, 2048, 4096, 8192, 16384, 32768)
GRID_HEADS = ((1, 1), (4, 1), (8, 1), (8, 2), (16, 2), (16, 4), (32, 4), (32, 8), (64, 8))
GRID_HEAD_DIM = 128


class Sizes(NamedTuple):
    """The sizes to measure along each axis."""

    tokens: tuple[int, ...]         # of products, experts, operators between them
    batches: tuple[int, ...]        # of decodes
    contexts: tuple[int, ...]       # of decodes: tokens in the cache after the step
    prompts: tuple[int, ...]        # consecutive powers of two
    lengths: tuple[int, ...]        # of prompts
    messages: tuple[int, ...]       # of collectives: elements of two bytes


FULL = Sizes(
    tokens=(1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192,
            16384),
    batches=(1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 512), contexts=tuple(2 ** i for i in range(4, 18)),
    prompts=(1, 2, 4, 8), lengths=(1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072),
    messages=tuple(2 ** i for i in range(7, 29)))       # 256 bytes to 512 MiB
QUICK = Sizes(
    tokens=(1, 4, 16, 64, 128, 256, 512, 1024, 4096, 8192), batches=(1, 4, 16, 64, 256),
    contexts=(16, 128, 1024, 4096, 16384, 65536), prompts=(1, 2), lengths=(1, 64, 256, 1024, 4096, 16384),
    messages=tuple(4 ** i for i in range(4, 13)))       # 512 bytes to 32 MiB
HOST = (("launch", 1), ("graph_replay", 1), ("graph_replay", 32), ("graph_replay", 512))


class Point(NamedTuple):
    """A row of a table, without its measured cells."""

    table: str
    cells: tuple[str | int, ...]    # in the order of KEYS[table]

    def values(self) -> dict[str, str | int]:
        """Return the cells by column."""
        return dict(zip(KEYS[self.table], self.cells))

    def __str__(self):
        return f"{self.table} " + ", ".join(f"{name} {value}" for name, value in self.values().items())


class Plan(NamedTuple):
    """The points to measure."""

    points: list[Point]
    shapes: dict[tuple[str, int], tuple]    # (operator, elements) of `small` -> its shape, as in torch_kernels.py
    left_out: dict[str, str]                # needs of the model that cannot be measured -> the reason


def make_plan(model: ModelSpec, asked: Iterable, tables: Iterable[str], sizes: Sizes, is_grid: bool = False,
              kernels: str = "torch", ranks: Iterable[int] = ()) -> Plan:
    """Return the points of a model, each once.

    Parameters
    ----------
    asked : Operators.asked of each deployment: the look-ups in tables.
    tables : keys of KEYS.
    is_grid : add products, heads and widths of other models.
    kernels : their source, a key of EXPERT_FORMATS.
    ranks : of collectives, besides those of the deployments.
    """
    longest = model.max_position_embeddings
    sizes = sizes._replace(contexts=_up_to(sizes.contexts, longest), lengths=_up_to(sizes.lengths, longest))
    shapes, points = {}, [Point("host", each) for each in HOST]
    left_out = {mixer.title: NO_KERNEL for mixer, _ in model.mixers if mixer.profile_key != MEASURED_KIND}
    for questions in asked:
        left_out |= dict.fromkeys(questions.others, NO_KERNEL)
        points += _small(model, questions, sizes, shapes, left_out)
        points += _products(questions.products, sizes, left_out)
        points += _attention(questions.attention_parts, sizes)
        points += _quantizing(questions.quantized_widths, sizes)
        points += _experts(questions.experts, EXPERT_FORMATS[kernels], sizes, left_out)
        points += _collectives({count for _, count in questions.collectives}, sizes)
        left_out |= {f"{kind} of {count} ranks": "priced by a formula; [latency.collective] can time it"
                     for kind, count in questions.collectives if kind not in COLLECTIVES}
        if kernels == "vllm" and any(kind == "all_reduce" for kind, _ in questions.collectives):
            left_out["vLLM's all-reduce of its own"] = "it takes vLLM's groups; the library's stands in"
    points += _collectives(ranks, sizes)
    if is_grid:
        points += _grid(sizes, shapes)
    order = list(KEYS)
    kept = [point for point in dict.fromkeys(points) if point.table in set(tables)]
    return Plan(sorted(kept, key=lambda point: order.index(point.table)), shapes, left_out)


def rotary_elements(heads: int, kv_heads: int, head_dim: int) -> int:
    """Return the elements that rotary embedding and KV write move for a token.

    They count as in domain/layers/mixers.py.
    """
    return 2 * (heads + kv_heads) * head_dim + 4 * kv_heads * head_dim


def _up_to(sizes: tuple[int, ...], longest: int) -> tuple[int, ...]:
    """Return the sizes up to `longest`, and `longest` itself."""
    return tuple(sorted({min(size, longest) for size in sizes}))


def _small(model: ModelSpec, questions, sizes: Sizes, shapes: dict, left_out: dict) -> Iterator[Point]:
    heads = {rotary_elements(*part[:3]): part[:3] for part in questions.attention_parts}
    normed = {(part[0] + part[1]) * part[2]: part[:3] for part in questions.attention_parts}
    mlps = [mlp for mlp in (model.mlp, model.moe and model.moe.shared_expert) if mlp]
    matrices = mlps[0].num_matrices if mlps else 3
    for name, elements in questions.small_operators:
        count = int(elements)
        shape = {"norms": (count // 4,), "activation": (count // matrices, matrices == 3),
                 "embedding": (count // 2, model.vocab_size), "sampler": (model.vocab_size,)}.get(name)
        if name == "rope_kv_write":
            shape = heads.get(count)
        elif name == "qk_norm":
            shape = normed.get(count)
        if shape is None:
            left_out[name] = NO_KERNEL
            continue
        shapes[name, count] = shape
        yield from (Point("small", (name, count, tokens)) for tokens in sizes.tokens if name != "sampler" or
                    tokens <= 4096)


def _products(products: Iterable[tuple], sizes: Sizes, left_out: dict) -> Iterator[Point]:
    products = list(products)
    for dtype, n, k in products:
        if dtype in MEASURED_FORMATS:
            yield from (Point("gemm", (dtype, m, math.ceil(n), math.ceil(k))) for m in sizes.tokens)
        elif ("fp8", n, k) in products and dtype == "fp8_block":
            left_out["products of fp8_block"] = "no kernel of this package; those of fp8 stand in"
        else:
            left_out[f"products of {dtype}"] = NO_KERNEL


def _attention(parts: Iterable[tuple], sizes: Sizes) -> Iterator[Point]:
    for heads, kv_heads, head_dim, kv_dtype, window in parts:
        site, formats = (heads, kv_heads, head_dim), ("bfloat16", kv_dtype)
        for batch in sizes.batches:
            yield from (Point("generation_attention", (batch, 1, *site, *formats, context - 1, window))
                        for context in sizes.contexts if batch * context <= MAX_CONTEXT_TOKENS)
        for prompts in sizes.prompts:
            yield from (Point("context_attention", (prompts, length, *site, *formats, 0, window))
                        for length in sizes.lengths if prompts * length <= MAX_PROMPT_TOKENS)


def _quantizing(widths: Iterable[float], sizes: Sizes) -> Iterator[Point]:
    for width in widths:
        yield from (Point("scale_matrix", (tokens, math.ceil(width))) for tokens in sizes.tokens)


def _collectives(ranks: Iterable[int], sizes: Sizes) -> Iterator[Point]:
    """Yield all kinds of collectives, so that one group of processes measures them."""
    for count in sorted(ranks):
        yield from (Point("nccl", (kind, "half", count, elements)) for kind in COLLECTIVES.values()
                    for elements in sizes.messages)


def _experts(experts: Iterable[tuple], formats: tuple[str, ...], sizes: Sizes, left_out: dict) -> Iterator[Point]:
    for dtype, *site in experts:
        if dtype in formats:
            yield from (Point("moe", (dtype, tokens, *map(int, site), "balanced")) for tokens in sizes.tokens)
        else:
            left_out[f"experts of {dtype}"] = NO_KERNEL


def _grid(sizes: Sizes, shapes: dict) -> Iterator[Point]:
    """Yield products, attention and widths that do not depend on a model."""
    yield from _products((("bfloat16", n, k) for n in GRID_WIDTHS for k in GRID_WIDTHS), sizes, {})
    yield from _attention(((*heads, GRID_HEAD_DIM, "bfloat16", 0) for heads in GRID_HEADS), sizes)
    for heads in GRID_HEADS:
        shapes["rope_kv_write", rotary_elements(*heads, GRID_HEAD_DIM)] = (*heads, GRID_HEAD_DIM, False)
    for width in GRID_WIDTHS:
        shapes["norms", 4 * width], shapes["activation", 3 * width] = (width,), (width, True)
    yield from (Point("small", (name, elements, tokens)) for name, elements in shapes
                if name in ("norms", "activation", "rope_kv_write") for tokens in sizes.tokens)
