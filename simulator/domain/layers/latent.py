"""Multi-head latent attention (MLA), dense or sparse."""
from msgspec.structs import replace

from simulator.domain.layers.base import Count, Matrix, Part, Positive, Product, divide
from simulator.domain.layers.mixers import Pass, SoftmaxAttention

# An indexer keeps its keys in fp8, with one float32 scale for 128 elements (DeepSeek-V3.2, vLLM's indexer cache).
INDEXER_BYTES_PER_ELEMENT = 1 + 4 / 128
# FlashMLA's packed format: the latent in fp8 with a float32 scale for 128 elements, the rotary part in 16 bit, together
# 656 bytes (vLLM 0.32.0, vllm/model_executor/layers/attention/mla_attention.py, get_kv_cache_spec).
SCALED_ELEMENTS, SCALE_BYTES, ROTARY_BYTES = 128, 4, 2


class Indexer(Part):
    """DeepSeek sparse attention: picks the `top_k` tokens a query attends to."""

    num_heads: Positive
    head_dim: Positive
    top_k: Positive

    def num_parameters(self, hidden_size: int, query_rank: int) -> int:
        """Count query and key projections, the key's LayerNorm, and head weights."""
        return (query_rank * self.num_heads * self.head_dim + hidden_size * self.head_dim + 2 * self.head_dim
                + hidden_size * self.num_heads)


class LatentAttention(SoftmaxAttention, tag_field="kind", tag="multi_head_latent"):
    """All heads share one latent per token, and ranks keep it whole.

    Prompts attend to keys and values expanded from the latents, decodes to the latents, with absorbed projections; with
    an indexer, both read its best `top_k` tokens after a pass over all of its keys.
    Launches: down, two norms, up, positions, write, two products with the latent, two more, output.
    Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.
    """

    title = "latent attention"
    backend = "mla"
    launches, num_inputs = 11, 3
    kv_is_whole = True                          # vLLM 0.32.0, vllm/v1/kv_offload/cpu/spec.py, on one node

    num_heads: Positive
    query_rank: Count                           # q_lora_rank; 0: queries are projected directly
    kv_rank: Positive                           # kv_lora_rank
    nope_head_dim: Positive                     # qk_nope_head_dim: query and key dims without position
    rope_head_dim: Positive                     # qk_rope_head_dim: rotary dims; the key's serve all heads
    value_head_dim: Positive                    # v_head_dim
    indexer: Indexer | None = None

    num_kv_heads = 1                            # one latent serves all heads
    head_dim = property(lambda self: self.nope_head_dim + self.rope_head_dim)       # once expanded
    value_dim = property(lambda self: self.value_head_dim)
    config_kv_heads = property(lambda self: self.num_heads)         # as if keys and values were cached
    cached_widths = property(lambda self: (self.kv_rank, self.rope_head_dim))
    decode_widths = property(lambda self: (self.kv_rank + self.rope_head_dim, self.kv_rank))
    expand_flops_per_context_token = property(
        lambda self: 2 * self.kv_rank * self.num_heads * (self.nope_head_dim + self.value_head_dim))

    def token_bytes(self, element_bytes: float, is_packed: bool = False) -> float:
        """Return the bytes of a token in one layer's KV cache, an indexer's key included.

        is_packed : kernels of sparse attention keep fp8 elements with their scales.
        """
        if self.indexer is None:
            return SoftmaxAttention.token_bytes(self, element_bytes)
        key = self.indexer.head_dim * INDEXER_BYTES_PER_ELEMENT
        if is_packed and element_bytes == 1:
            scales = self.kv_rank / SCALED_ELEMENTS * SCALE_BYTES
            return self.kv_rank + scales + self.rope_head_dim * ROTARY_BYTES + key
        return SoftmaxAttention.token_bytes(self, element_bytes) + key

    def passes(self, element_bytes: float, window: float = 0) -> list[Pass]:
        """Return the pass of attention, behind that of an indexer, with fp8 keys."""
        if self.indexer is None:
            return SoftmaxAttention.passes(self, element_bytes, window)
        score_flops = 2 * self.indexer.num_heads * self.indexer.head_dim
        return [Pass(window, score_flops, score_flops, self.indexer.head_dim),
                *SoftmaxAttention.passes(self, element_bytes, self.indexer.top_k)]

    def products(self, hidden: int) -> list[Product]:
        """Return the products to queries, latents, keys and values, and outputs."""
        return [Product("q_up", self.num_heads * self.head_dim, self.query_rank or hidden),
                Product("latent_down", self.query_rank + self.kv_rank + self.rope_head_dim, hidden),
                Product("kv_up", self.num_heads * (self.nope_head_dim + self.value_head_dim), self.kv_rank),
                Product("attention_out", hidden, self.output_width)]

    def split_widths(self):
        """Yield the widths of all projections that ranks split."""
        yield "queries", self.num_heads * self.head_dim
        yield "keys and values", self.num_heads * (self.nope_head_dim + self.value_head_dim)
        yield from SoftmaxAttention.split_widths(self)

    def input_parameters(self, hidden_size: int) -> int:
        """Count the down-projections, which every tensor-parallel rank holds whole."""
        return hidden_size * (self.query_rank + self.kv_rank + self.rope_head_dim)

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the down, up and output projections."""
        queries = Matrix("q_b" if self.query_rank else "q", self.num_heads * self.head_dim,
                         self.query_rank or hidden_size)
        return [Matrix("q_a", self.query_rank, hidden_size), queries,
                Matrix("kv_a", self.kv_rank + self.rope_head_dim, hidden_size),
                Matrix("kv_b", self.num_heads * (self.nope_head_dim + self.value_head_dim), self.kv_rank),
                Matrix("o", hidden_size, self.output_width)]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections, the norms of both latents, the indexer."""
        indexer = self.indexer.num_parameters(hidden_size, self.query_rank) if self.indexer else 0
        return self.matrix_parameters(hidden_size) + self.query_rank + self.kv_rank + indexer

    def shard(self, tensor_parallel: int) -> "LatentAttention":
        """Return a rank's share: heads are split, latents and indexer whole."""
        return replace(self, num_heads=divide(self.num_heads, tensor_parallel, "num_heads"))
