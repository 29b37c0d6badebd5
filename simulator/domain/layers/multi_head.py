"""Softmax attention with keys and values in the cache: MHA, GQA, MQA."""
from typing import Literal

from msgspec.structs import replace

from simulator.domain.layers.base import Count, Matrix, Positive, divide
from simulator.domain.layers.mixers import SoftmaxAttention


class MultiHeadAttention(SoftmaxAttention, tag_field="kind", tag="multi_head"):
    """Softmax attention with one KV head per group of heads."""

    title = "multi-head attention"

    num_heads: Positive
    num_kv_heads: Positive
    head_dim: Positive                          # of queries and keys
    value_head_dim: Count = 0                   # 0: as head_dim
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"     # one weight per head_dim, or per element of all heads
    output_gate: bool = False                   # the query projection is doubled: a gate on the attention output
    head_gate: bool = False                     # a gate on the output of each head, of a projection of its own
    sinks: bool = False                         # one learned logit per head
    key_is_value: bool = False                  # values are the unnormalised keys: no value projection
    reads_earlier_cache: bool = False           # that of an earlier layer: no projections of keys and values, no own KV

    def __post_init__(self):
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads = {self.num_heads} is not a multiple of num_kv_heads = {self.num_kv_heads}")

    value_dim = property(lambda self: self.value_head_dim or self.head_dim)
    norms_all_heads = property(lambda self: self.qk_norm == "full")
    read_widths = SoftmaxAttention.cached_widths
    cached_widths = property(lambda self: () if self.reads_earlier_cache else self.read_widths)

    @property
    def _own_kv_heads(self) -> int:
        """Heads of keys that the layer projects itself."""
        return 0 if self.reads_earlier_cache else self.num_kv_heads

    @property
    def lora_widths(self) -> tuple[int, int]:
        """Adapters of the projections q, k, v and o."""
        projections = 2 if self.reads_earlier_cache else 4
        return projections, (self.num_heads + self._own_kv_heads) * (self.head_dim + self.value_dim)

    @property
    def normed_elements(self) -> int:
        """Elements of a token's queries and keys that have norms of their own."""
        return 0 if self.qk_norm == "none" else (self.num_heads + self._own_kv_heads) * self.head_dim

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projections q (with its gate), k, v, gate of heads, and o."""
        queries = self.num_heads * self.head_dim * (2 if self.output_gate else 1)
        values = 0 if self.key_is_value else self._own_kv_heads * self.value_dim
        return [Matrix("q", queries, hidden_size), Matrix("k", self._own_kv_heads * self.head_dim, hidden_size),
                Matrix("v", values, hidden_size), Matrix("gate", self.num_heads * self.head_gate, hidden_size),
                Matrix("o", hidden_size, self.num_heads * self.value_dim)]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections, biases, query and key norms, sinks."""
        heads = self.num_heads + self._own_kv_heads
        norm = {"none": 0, "head": 1 if self.reads_earlier_cache else 2, "full": heads}[self.qk_norm] * self.head_dim
        bias = (heads * self.head_dim + self._own_kv_heads * self.value_dim) * self.qkv_bias
        bias += hidden_size * self.output_bias
        return self.matrix_parameters(hidden_size) + bias + norm + self.num_heads * self.sinks

    def windowed(self, change) -> "MultiHeadAttention":
        """Return the attention of sliding layers, which may have heads of their own."""
        return replace(self, num_heads=change.num_heads or self.num_heads, sinks=change.sinks or self.sinks,
                       num_kv_heads=change.num_kv_heads or self.num_kv_heads,
                       head_dim=change.head_dim or self.head_dim, key_is_value=change.key_is_value)

    def shard(self, tensor_parallel: int) -> "MultiHeadAttention":
        """Return a rank's share; KV heads fewer than ranks are replicated, as in vLLM."""
        kv_heads = self.num_kv_heads
        if tensor_parallel > kv_heads:
            divide(tensor_parallel, kv_heads, "tensor_parallel beyond num_kv_heads")
        return replace(
            self,
            num_heads=divide(self.num_heads, tensor_parallel, "num_heads"),
            num_kv_heads=divide(kv_heads, tensor_parallel, "num_kv_heads") if tensor_parallel <= kv_heads else 1)
