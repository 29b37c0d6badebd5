"""DeepSeek-V4's attention to compressed tokens: CSA, HCA, and layers with the window alone."""
import math

from msgspec.structs import replace

from simulator.domain.layers.base import Count, Matrix, Positive, Product, divide
from simulator.domain.layers.indexer import Indexer
from simulator.domain.layers.mixers import Pass, SoftmaxAttention

# A vector in FlashMLA's packed format (fp8_ds_mla of vLLM 0.33 for DeepSeek-V4): elements without position in fp8, one
# e8m0 scale for each 64 and a byte of padding, rotary ones in 16 bit: 448 + 8 + 128 = 584 bytes.
SCALED_ELEMENTS, PADDING, ROTARY_BYTES = 64, 1, 2
# Multiples of bytes of a page, packed or not; tokens of a block of the window.
PACKED_ALIGNMENT, PLAIN_ALIGNMENT, WINDOW_BLOCK = 576, 512, 64
FLOAT32 = 4
OVERLAPPING = 4                 # the ratio of CSA, which compresses windows of twice as many tokens
# Matrices that read the hidden state; each rank holds them whole.
OF_HIDDEN = ("q_a", "kv", "compress_kv", "compress_gate", "index_kv", "index_gate", "index_heads")


class CompressedAttention(SoftmaxAttention, tag_field="kind", tag="csa_hca"):
    """One vector serves all heads as key and value; `ratio` tokens leave one.

    Queries attend to the last `window` tokens and to compressed ones: with ratio 4 (CSA) those that an indexer picks,
    with another ratio (HCA) all, with ratio 0 none. The output projection has two parts, the first by groups of heads.
    Source: DeepSeek-V4's report, section 2.3, and Hugging Face's transformers, models/deepseek_v4.
    """

    title = "compressed attention"
    backend = "mla"
    kv_is_whole = True
    packs_pages = True
    block_size = 256
    auto_cache = "fp8"                          # FlashMLA's packed format, fp8_ds_mla; FlashInfer's 16 bit is named
    launches, num_inputs = None, 3

    num_heads: Positive
    head_dim: Positive                          # of queries, and of the vector that is key and value
    rope_head_dim: Positive                     # of which rotary
    query_rank: Positive
    output_rank: Positive
    output_groups: Positive
    window: Positive
    ratio: Count                                # tokens of a compressed one; 0: there are none
    indexer: Indexer | None = None              # of compressed tokens; top_k counts these
    sinks: bool = True                          # one learned logit per head

    num_kv_heads = 1
    value_dim = property(lambda self: self.head_dim)
    output_width = property(lambda self: self.output_groups * self.output_rank)
    config_kv_heads = property(lambda self: self.num_heads)
    cached_widths = property(lambda self: (self.head_dim,))
    decode_widths = property(lambda self: (self.head_dim, self.head_dim))

    def __post_init__(self):
        if (self.indexer is not None) != (self.ratio == OVERLAPPING):
            raise ValueError(f"ratio = {self.ratio}: an indexer goes with ratio = {OVERLAPPING}, and no other")
        if self.num_heads % self.output_groups:
            raise ValueError(f"output_groups = {self.output_groups} does not divide num_heads = {self.num_heads}")

    # ---- the cache

    def row_bytes(self, element_bytes: float) -> float:
        """Return the bytes of one vector: packed in fp8, else plain."""
        if element_bytes != 1:
            return self.head_dim * element_bytes
        plain = self.head_dim - self.rope_head_dim
        return plain + plain // SCALED_ELEMENTS + PADDING + self.rope_head_dim * ROTARY_BYTES

    def token_bytes(self, element_bytes: float, is_packed: bool = False) -> float:
        """Return the bytes that a token adds to one layer: a share of a compressed one."""
        if self.ratio == 0:
            return 0.0
        key = self.indexer.key_bytes if self.indexer else 0
        return (self.row_bytes(element_bytes) + key) / self.ratio

    @property
    def states(self) -> tuple[tuple[int, int, int], ...]:
        """Rings of a sequence's last tokens, which are not compressed yet.

        Each is (elements of a token, tokens, tokens of a block): key and gate, in float32; CSA keeps two windows side
        by side in each. Source: vLLM 0.33's planner.
        """
        if self.ratio == 0:
            return ()
        overlap = 1 + (self.ratio == OVERLAPPING)
        widths = (self.head_dim, *([self.indexer.head_dim] if self.indexer else []))
        return tuple((2 * overlap * width, overlap * self.ratio, 4 if overlap == 2 else 8) for width in widths)

    def own_windows(self, element_bytes: float) -> list[tuple[int, float]]:
        """Return the window, of one vector a token."""
        return [(self.window, self.row_bytes(element_bytes))]

    rings = property(lambda self: [(tokens, FLOAT32 * elements) for elements, tokens, _ in self.states])

    def pages(self, block_size: int, element_bytes: float, is_packed: bool) -> list[tuple[str, int, int, float]]:
        """Return (kind, window, tokens, bytes) of a block of each cache of a layer.

        The window, in blocks of its own; compressed tokens and their index keys; rings of tokens not compressed yet,
        which end as windows do. Source: vLLM 0.33's planner.
        """
        def aligned(num_bytes: float) -> float:
            return math.ceil(num_bytes / alignment) * alignment

        row, alignment = self.row_bytes(element_bytes), PACKED_ALIGNMENT if element_bytes == 1 else PLAIN_ALIGNMENT
        if self.ratio and block_size % self.ratio:
            raise ValueError(f"block_size = {block_size}: expected a multiple of {self.ratio}, the tokens of a "
                             "compressed one")
        found = [("sliding_attention", self.window, WINDOW_BLOCK, aligned(row * WINDOW_BLOCK))]
        keys = [row, *([self.indexer.key_bytes] if self.indexer else [])] if self.ratio else []
        found += [("full_attention", 0, block_size, aligned(key * (block_size // self.ratio))) for key in keys]
        return found + [("sliding_attention", tokens, block, aligned(FLOAT32 * elements * block))
                        for elements, tokens, block in self.states]

    @property
    def drafting(self) -> "CompressedAttention":
        """The mixer of a multi-token prediction module: the window alone."""
        return replace(self, ratio=0, indexer=None)

    # ---- work

    def passes(self, element_bytes: float, window: float = 0) -> list[Pass]:
        """Return the passes over compressed tokens, and that over the window."""
        pair, row = 4 * self.num_heads * self.head_dim, self.row_bytes(element_bytes)
        near = Pass(self.window, pair, pair, row)
        if self.ratio == 0:
            return [near]
        share = 1 / self.ratio
        if self.indexer is None:
            return [Pass(0, pair * share, pair * share, row * share), near]
        scores = self.indexer.pair_flops * share
        seen = self.indexer.top_k * self.ratio
        return [Pass(0, scores, scores, self.indexer.key_bytes * share),
                Pass(seen, pair * share, pair * share, row * share), near]

    # ---- weights

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projections of attention, compressor and indexer."""
        width = self.num_heads * self.head_dim
        return [Matrix("q_a", self.query_rank, hidden_size), Matrix("q_b", width, self.query_rank),
                Matrix("kv", self.head_dim, hidden_size),
                Matrix("o_a", self.output_width, width // self.output_groups),
                Matrix("o_b", hidden_size, self.output_width), *self._compressor(hidden_size),
                *([Matrix("index_q", self.indexer.num_heads * self.indexer.head_dim, self.query_rank),
                   Matrix("index_heads", self.indexer.num_heads, hidden_size)] if self.indexer else [])]

    def _compressor(self, hidden: int) -> list[Matrix]:
        return [Matrix(f"{prefix}_{name}", elements // 2, hidden)
                for prefix, (elements, _, _) in zip(("compress", "index"), self.states)
                for name in ("kv", "gate")]

    def products(self, hidden: int) -> list[Product]:
        """Return the products; those from the hidden state are one, whole on each rank."""
        of_hidden = sum(each.outputs for each in self.matrices(hidden) if each.name in OF_HIDDEN)
        others = {each.name: each for each in self.matrices(hidden)}
        return [Product("latent_down", of_hidden, hidden),
                *(Product({"q_b": "q_up", "o_b": "attention_out"}.get(name, name), others[name].outputs,
                          others[name].inputs) for name in ("q_b", "index_q", "o_a", "o_b") if name in others)]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections, norms, positions in a compressed window, sinks."""
        small = self.query_rank + self.head_dim + self.num_heads * self.sinks
        for elements, _, _ in self.states:
            overlap = 1 + (self.ratio == OVERLAPPING)
            small += self.ratio * elements // 2 + elements // (2 * overlap)
        return self.matrix_parameters(hidden_size) + small

    def input_parameters(self, hidden: int) -> int:
        """Count the projections that every tensor-parallel rank holds whole."""
        return sum(each.parameters for each in self.matrices(hidden) if each.name in OF_HIDDEN)

    def split_widths(self):
        """Yield the widths of all projections that ranks split."""
        yield "queries", self.num_heads * self.head_dim
        yield from SoftmaxAttention.split_widths(self)

    def shard(self, tensor_parallel: int) -> "CompressedAttention":
        """Return a rank's share: heads and groups of outputs are split, all else whole."""
        return replace(self, num_heads=divide(self.num_heads, tensor_parallel, "num_heads"),
                       output_groups=divide(self.output_groups, tensor_parallel, "output_groups"))
