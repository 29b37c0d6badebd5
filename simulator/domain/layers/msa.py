"""MiniMax's sparse attention: plain attention over the blocks of the context that an indexer picks."""
from simulator.domain.layers.base import Matrix, Positive
from simulator.domain.layers.mixers import Pass
from simulator.domain.layers.multi_head import MultiHeadAttention

INDEX_KEY_BYTES = 2     # an index key is kept in 16 bit also where the cache is fp8 (vLLM 0.33, models of MiniMax-M3)


class BlockSparseAttention(MultiHeadAttention, kw_only=True, tag_field="kind", tag="msa"):
    """Attention to the `top_k_blocks` blocks of tokens with the best scores.

    The query's own block is among them. One index key a token serves all index heads; a block has the largest score
    of its tokens. Source: Hugging Face's transformers, models/minimax_m3_vl.
    """

    title = "block-sparse attention"

    index_heads: Positive
    index_head_dim: Positive
    sparse_block: Positive = 128                # tokens of a block
    top_k_blocks: Positive

    seen_tokens = property(lambda self: self.sparse_block * self.top_k_blocks)

    def token_bytes(self, element_bytes: float, is_packed: bool = False) -> float:
        """Return the bytes of a token in one layer's KV cache, its index key included."""
        return super().token_bytes(element_bytes) + self.index_head_dim * INDEX_KEY_BYTES

    def passes(self, element_bytes: float, window: float = 0) -> list[Pass]:
        """Return the pass over all index keys, and that over the blocks picked."""
        scores = 2 * self.index_heads * self.index_head_dim
        return [Pass(window, scores, scores, self.index_head_dim * INDEX_KEY_BYTES),
                *super().passes(element_bytes, self.seen_tokens)]

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projections of plain attention and of the indexer."""
        return [*super().matrices(hidden_size),
                Matrix("index_q", self.index_heads * self.index_head_dim, hidden_size),
                Matrix("index_k", self.index_head_dim, hidden_size)]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights, the norms of index queries and keys included."""
        return super().num_parameters(hidden_size) + 2 * self.index_head_dim
