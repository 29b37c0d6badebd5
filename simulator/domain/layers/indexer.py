"""Indexers of sparse attention, which score all tokens and pick the best."""
from typing import Literal

from simulator.domain.layers.base import Matrix, Part, Positive

# Bytes of a key's elements in the indexer's cache: fp8 with one float32 scale for 128 elements (vLLM 0.33,
# vllm/model_executor/models/deepseek_v2.py, Indexer), MXFP4 with an e8m0 scale for 32, or 16 bit.
KEY_BYTES = {"fp8": 1 + 4 / 128, "mxfp4": 0.5 + 1 / 32, "bfloat16": 2.0}


class Indexer(Part):
    """DeepSeek sparse attention: picks the `top_k` tokens that a query attends to.

    Source: DeepSeek-V3.2, arXiv 2512.02556, section 2; pooled keys: GLM-5.3 in Hugging Face's transformers,
    models/glm5_next (Glm5NextTextIndexer).
    """

    num_heads: Positive
    head_dim: Positive
    top_k: Positive                             # tokens
    key_dtype: Literal["fp8", "mxfp4", "bfloat16"] = "fp8"      # of its cache
    pool: Positive = 1                          # tokens with one key together
    is_shared: bool = False                     # an earlier layer's choice is used again: no weights, keys or work

    key_bytes = property(lambda self: 0.0 if self.is_shared else self.head_dim * KEY_BYTES[self.key_dtype] / self.pool)
    pair_flops = property(lambda self: 0 if self.is_shared else 2 * self.num_heads * self.head_dim / self.pool)
    # Of a sequence in one layer: the tokens not pooled yet, of key and gate, in 16 bit.
    tail_bytes = property(lambda self: 0 if self.pool == 1 or self.is_shared else 2 * self.head_dim * 2 * self.pool)

    def matrices(self, hidden_size: int, query_rank: int) -> list[Matrix]:
        """Return the projections of queries, keys, weights of heads and pooled keys."""
        if self.is_shared:
            return []
        return [Matrix("index_q", self.num_heads * self.head_dim, query_rank or hidden_size),
                Matrix("index_k", self.head_dim, hidden_size), Matrix("index_heads", self.num_heads, hidden_size),
                Matrix("index_pool", self.head_dim * (self.pool > 1), hidden_size)]

    def num_parameters(self, hidden_size: int, query_rank: int) -> int:
        """Count all weights: projections, the key's LayerNorm, positions of pooled keys."""
        if self.is_shared:
            return 0
        positions = self.pool * self.head_dim if self.pool > 1 else 0
        return sum(each.parameters for each in self.matrices(hidden_size, query_rank)) + 2 * self.head_dim + positions
