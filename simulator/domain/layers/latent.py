"""Multi-head latent attention (MLA), dense or sparse."""
from typing import Literal

from msgspec.structs import replace

from simulator.domain.layers.base import Count, Matrix, Positive, Product, divide
from simulator.domain.layers.indexer import Indexer
from simulator.domain.layers.mixers import Pass, SoftmaxAttention

# FlashMLA's packed format: the latent in fp8 with a float32 scale for 128 elements, the rotary part in 16 bit, together
# 656 bytes (vLLM 0.32.0, vllm/model_executor/layers/attention/mla_attention.py, get_kv_cache_spec).
SCALED_ELEMENTS, SCALE_BYTES, ROTARY_BYTES = 128, 4, 2


class LatentAttention(SoftmaxAttention, tag_field="kind", tag="multi_head_latent"):
    """All heads share one latent per token, and ranks keep it whole.

    Prompts attend to keys and values expanded from the latents, decodes to the latents, with absorbed projections; with
    an indexer, both attend to the latents of its best `top_k` tokens after a pass over all of its keys (vLLM 0.33,
    vllm/model_executor/layers/attention/mla_attention.py: sparse kernels have no expanded form).
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
    rope_head_dim: Count                        # qk_rope_head_dim: rotary dims; the key's serve all heads; 0: none
    value_head_dim: Positive                    # v_head_dim
    output_gate: Literal["none", "head", "full"] = "none"     # on the output: one per head, or per element of all heads
    sinks: bool = False                         # one learned logit per head
    indexer: Indexer | None = None

    num_kv_heads = 1                            # one latent serves all heads
    head_dim = property(lambda self: self.nope_head_dim + self.rope_head_dim)       # once expanded
    value_dim = property(lambda self: self.value_head_dim)
    gate_width = property(lambda self: {"none": 0, "head": 1, "full": self.value_head_dim}[self.output_gate]
                          * self.num_heads)
    config_kv_heads = property(lambda self: self.num_heads)         # as if keys and values were cached
    cached_widths = property(lambda self: (self.kv_rank, self.rope_head_dim))
    decode_widths = property(lambda self: (self.kv_rank + self.rope_head_dim, self.kv_rank))
    absorbed_elements = property(
        lambda self: self.kv_rank * self.num_heads * (self.nope_head_dim + self.value_head_dim))
    expand_flops_per_context_token = property(lambda self: 2 * self.absorbed_elements)

    packs_pages = property(lambda self: self.indexer is not None and self.indexer.pool > 1)

    def token_bytes(self, element_bytes: float, is_packed: bool = False) -> float:
        """Return the bytes of a token in one layer's KV cache, an indexer's key included."""
        key = self.indexer.key_bytes if self.indexer else 0.0
        return self.aligned_token_bytes(element_bytes, is_packed) + key

    def aligned_token_bytes(self, element_bytes: float, is_packed: bool = False) -> float:
        """Return the bytes of a token's latent.

        is_packed : kernels of sparse attention keep fp8 elements with their scales.
        """
        if self.indexer is None or not is_packed or element_bytes != 1:
            return SoftmaxAttention.token_bytes(self, element_bytes)
        scales = self.kv_rank / SCALED_ELEMENTS * SCALE_BYTES
        return self.kv_rank + scales + self.rope_head_dim * ROTARY_BYTES

    @property
    def rings(self) -> list[tuple[int, float]]:
        """The ring of the last tokens, with index keys not pooled yet."""
        tail = self.indexer.tail_bytes if self.indexer else 0
        return [(self.indexer.pool, tail / self.indexer.pool)] if tail else []

    def pages(self, block_size: int, element_bytes: float, is_packed: bool) -> list[tuple[str, int, int, float]]:
        """Return (kind, window, tokens, bytes) of a block of each cache of a layer.

        Keys are pooled. Latents; pooled keys; a ring of the tokens not pooled yet (vLLM 0.33, CircularBufferSpec).
        """
        latents = self.aligned_token_bytes(element_bytes, is_packed) * block_size
        pooled = [] if self.indexer.is_shared else [
            ("full_attention", 0, block_size, self.indexer.key_bytes * block_size),
            ("ring", 0, self.indexer.pool, self.indexer.tail_bytes)]
        return [("full_attention", 0, block_size, latents), *pooled]

    @property
    def drafting(self) -> "LatentAttention":
        """The mixer of a multi-token prediction module: it has an indexer of its own."""
        return replace(self, indexer=self.indexer and replace(self.indexer, is_shared=False))

    def passes(self, element_bytes: float, window: float = 0) -> list[Pass]:
        """Return the pass of attention, behind that of an indexer of its own."""
        indexer = self.indexer
        if indexer is None:
            return SoftmaxAttention.passes(self, element_bytes, window)
        scores = Pass(window, indexer.pair_flops, indexer.pair_flops, indexer.key_bytes)
        decode = self.decode_flops_per_context_token
        best = Pass(indexer.top_k, decode, decode, sum(self.read_widths) * element_bytes)
        return [best] if indexer.is_shared else [scores, best]

    def products(self, hidden: int) -> list[Product]:
        """Return the products to queries, latents, keys and values, and outputs."""
        indexer = self.indexer.matrices(hidden, self.query_rank) if self.indexer else []
        of_hidden = sum(each.outputs for each in indexer[1:])
        return [Product("q_up", self.num_heads * self.head_dim, self.query_rank or hidden),
                *(Product(each.name, each.outputs, each.inputs) for each in indexer[:1]),
                *([Product("index_down", of_hidden, hidden, is_quantized=False)] if indexer else []),
                *([Product("gate", self.gate_width, hidden)] if self.gate_width else []),
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
        """Return the down, up and output projections, the gate and the indexer's."""
        queries = Matrix("q_b" if self.query_rank else "q", self.num_heads * self.head_dim,
                         self.query_rank or hidden_size)
        return [Matrix("q_a", self.query_rank, hidden_size), queries,
                Matrix("kv_a", self.kv_rank + self.rope_head_dim, hidden_size),
                Matrix("kv_b", self.num_heads * (self.nope_head_dim + self.value_head_dim), self.kv_rank),
                Matrix("o", hidden_size, self.output_width), Matrix("gate", self.gate_width, hidden_size),
                *(self.indexer.matrices(hidden_size, self.query_rank) if self.indexer else [])]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections, norms of latents and indexer, sinks."""
        indexer = 0
        if self.indexer:
            indexer = self.indexer.num_parameters(hidden_size, self.query_rank) - sum(
                each.parameters for each in self.indexer.matrices(hidden_size, self.query_rank))
        return (self.matrix_parameters(hidden_size) + self.query_rank + self.kv_rank + indexer
                + self.num_heads * self.sinks)

    def shard(self, tensor_parallel: int) -> "LatentAttention":
        """Return a rank's share: heads are split, latents and indexer whole."""
        return replace(self, num_heads=divide(self.num_heads, tensor_parallel, "num_heads"))
