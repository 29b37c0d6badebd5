"""Attention of new tokens behind cached ones, of decodes with unequal contexts, and of decodes beside a chunk.

Kernels: one in Triton (triton_attention.py); FlashAttention 2 and scaled_dot_product_attention as PyTorch ships them,
for grouped heads. A point has `queries` and `contexts` per sequence; a context counts the new tokens.
"""
from collections.abc import Callable, Iterator
from typing import NamedTuple

from campaign.record import Part


class Shape(NamedTuple):
    """The heads of one layer on one rank."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int           # of values, and of keys without their rotary part
    rotary_dim: int = 0     # of latent attention: the part of keys that values lack

    def kv_bytes(self, num_tokens: int) -> int:
        """Return the bytes of a layer's KV, two bytes an element; latent values are a view of the keys."""
        width = self.head_dim + self.rotary_dim if self.rotary_dim else 2 * self.head_dim
        return 2 * num_tokens * self.kv_heads * width


GROUPED = (Shape("grouped", 32, 8, 128), Shape("grouped", 8, 1, 128))
LATENT = (Shape("latent", 16, 1, 512, 64), Shape("latent", 128, 1, 512, 64))
NEW_TOKENS = (1, 4, 16, 64, 512)
CACHED_TOKENS = (0, 1024, 8192, 32_768, 122_880)
DECODES, MEANS, RATIOS = 64, (2048, 8192), (1, 2, 4, 10)
CHUNKS, CHUNK_CONTEXTS, BESIDE = (256, 512, 1024, 2048), (0, 8192), 4096


def spread(mean: int, ratio: float, count: int = DECODES) -> list[int]:
    """Return contexts in equal steps, the longest `ratio` times the shortest, about `mean` on average."""
    shortest = 2 * mean / (1 + ratio)
    step = shortest * (ratio - 1) / max(count - 1, 1)
    return [max(round(shortest + step * i), 1) for i in range(count)]


def one_long(mean: int, ratio: float, count: int = DECODES) -> list[int]:
    """Return equal contexts but one, which is `ratio` times as long, about `mean` on average."""
    short = max(round(mean * count / (count - 1 + ratio)), 1)
    return [short] * (count - 1) + [round(short * ratio)]


class Kernels:
    """Makes calls of attention.

    Parameters
    ----------
    torch : the module.
    """

    def __init__(self, torch, device: str):
        self._torch, self._device = torch, device
        self._dtype = torch.bfloat16 if device == "cuda" else torch.float32

    def makers(self, shape: Shape, queries: list[int], contexts: list[int]) -> Iterator[tuple[str, Callable]]:
        """Yield a name and a maker of calls with operands of their own, for each kernel that supports the shape."""
        yield "triton", lambda: self._triton(shape, queries, contexts)
        if not shape.rotary_dim and self._device == "cuda":
            yield "torch_flash_varlen", lambda: self._flash(shape, queries, contexts)
        if not shape.rotary_dim and len(queries) == 1:
            yield "torch_sdpa", lambda: self._sdpa(shape, queries[0], contexts[0])

    def _normal(self, *sizes: int):
        return self._torch.empty(sizes, dtype=self._dtype, device=self._device).normal_()

    def _starts(self, counts: list[int]):
        sums = [0]
        for count in counts:
            sums.append(sums[-1] + count)
        return self._torch.tensor(sums, dtype=self._torch.int32, device=self._device)

    def _triton(self, shape: Shape, queries: list[int], contexts: list[int]):
        from campaign.triton_attention import attend, num_splits  # needs Triton

        q = self._normal(sum(queries), shape.heads, shape.head_dim + shape.rotary_dim)
        keys = self._normal(sum(contexts), shape.kv_heads, shape.head_dim + shape.rotary_dim)
        values = keys[..., :shape.head_dim] if shape.rotary_dim else self._normal(*keys.shape)
        starts, kv_starts = self._starts(queries), self._starts(contexts)
        splits = num_splits(self._torch, self._device, shape, queries, contexts)
        return (lambda: attend(self._torch, q, keys, values, starts, kv_starts, max(queries), splits),
                shape.kv_bytes(sum(contexts)) + 4 * q.numel())

    def _flash(self, shape: Shape, queries: list[int], contexts: list[int]):
        q = self._normal(sum(queries), shape.heads, shape.head_dim)
        keys, values = (self._normal(sum(contexts), shape.kv_heads, shape.head_dim) for _ in range(2))
        starts, kv_starts = self._starts(queries), self._starts(contexts)
        longest, longest_kv = max(queries), max(contexts)
        return (lambda: self._torch.ops.aten._flash_attention_forward(
            q, keys, values, starts, kv_starts, longest, longest_kv, 0.0, True, False),
            shape.kv_bytes(sum(contexts)) + 4 * q.numel())

    def _sdpa(self, shape: Shape, queries: int, context: int):
        from torch.nn.attention.bias import causal_lower_right

        functional = self._torch.nn.functional
        q = self._normal(1, queries, shape.heads, shape.head_dim).transpose(1, 2)
        keys, values = (self._normal(1, context, shape.kv_heads, shape.head_dim).transpose(1, 2) for _ in range(2))
        mask = causal_lower_right(queries, context) if queries > 1 else None
        return (lambda: functional.scaled_dot_product_attention(
            q, keys, values, attn_mask=mask, enable_gqa=shape.heads != shape.kv_heads),
            shape.kv_bytes(context) + 4 * q.numel())


class Sizes(NamedTuple):
    """The points of the three parts."""

    new_tokens: tuple[int, ...] = NEW_TOKENS
    cached_tokens: tuple[int, ...] = CACHED_TOKENS
    shapes: tuple[Shape, ...] = GROUPED + LATENT
    decodes: int = DECODES
    means: tuple[int, ...] = MEANS
    ratios: tuple[int, ...] = RATIOS
    chunks: tuple[int, ...] = CHUNKS
    chunk_contexts: tuple[int, ...] = CHUNK_CONTEXTS
    beside: int = BESIDE


TINY = Sizes((1, 4), (0, 64), (Shape("grouped", 4, 2, 16), Shape("latent", 4, 1, 16, 16)),
             3, (32,), (1, 10), (8,), (0,), 32)


def behind_cached(part: Part, kernels: Kernels, measure: Callable, sizes: Sizes) -> None:
    """Measure new tokens of one sequence behind cached ones."""
    for shape in sizes.shapes:
        for cached in sizes.cached_tokens:
            for new in sizes.new_tokens:
                _each_kernel(part, kernels, measure, shape, [new], [cached + new],
                             new_tokens=new, cached_tokens=cached)


def unequal_decodes(part: Part, kernels: Kernels, measure: Callable, sizes: Sizes) -> None:
    """Measure decodes with contexts of one mean, 1 to 10 times apart."""
    for shape in (sizes.shapes[0], sizes.shapes[-1]):
        for mean in sizes.means:
            for ratio in sizes.ratios:
                for name, contexts in (("spread", spread(mean, ratio, sizes.decodes)),
                                       ("one_long", one_long(mean, ratio, sizes.decodes))):
                    if name == "spread" or ratio > 1:
                        _each_kernel(part, kernels, measure, shape, [1] * sizes.decodes, contexts,
                                     form=name, mean_context=mean, ratio=ratio, sequences=sizes.decodes,
                                     context_tokens=sum(contexts), longest=max(contexts))


def beside_a_chunk(part: Part, kernels: Kernels, measure: Callable, sizes: Sizes) -> None:
    """Measure decodes and a prompt's chunk in one call, and each in a separate call."""
    decodes = [1] * sizes.decodes, [sizes.beside] * sizes.decodes
    for shape in (sizes.shapes[0], sizes.shapes[-1]):
        _each_kernel(part, kernels, measure, shape, *decodes, call="decodes", chunk=0, cached_tokens=0,
                     sequences=sizes.decodes, context=sizes.beside)
        for cached in sizes.chunk_contexts:
            for chunk in sizes.chunks:
                point = {"chunk": chunk, "cached_tokens": cached, "sequences": sizes.decodes, "context": sizes.beside}
                _each_kernel(part, kernels, measure, shape, [chunk], [cached + chunk], call="chunk", **point)
                _each_kernel(part, kernels, measure, shape, [*decodes[0], chunk], [*decodes[1], cached + chunk],
                             call="together", **point)


def _each_kernel(part: Part, kernels: Kernels, measure: Callable, shape: Shape, queries, contexts, **point) -> None:
    for name, make in kernels.makers(shape, queries, contexts):
        part.add(lambda make=make: measure(make), kernel=name, shape=shape.name, heads=shape.heads,
                 kv_heads=shape.kv_heads, head_dim=shape.head_dim, rotary_dim=shape.rotary_dim,
                 kv_bytes=shape.kv_bytes(sum(contexts)), **point)
