"""The parts of a decoder layer, and how many weights each has.

Every part has these methods, for a model of width `hidden_size`:

- `matrix_parameters(hidden_size)`: weights of its linear projections, the ones that quantisation shrinks;
- `num_parameters(hidden_size)`: projections plus biases, norms and other small tensors;
- `shard(tensor_parallel)`: the part as one tensor-parallel rank holds it.

Attention parts also give the KV of one token, and the work of one query per context token.
"""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

MOST = 2**40                                    # bound of every count: far above any model, far below overflow
MAX_LAYERS = 10_000
Positive = Annotated[int, Meta(ge=1, le=MOST)]
Count = Annotated[int, Meta(ge=0, le=MOST)]


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all parts: strict about unknown keys."""


def divide(count: int, ways: int, what: str) -> int:
    """Return `count / ways`; `what` names the count when it does not divide."""
    if count % ways:
        raise ValueError(f"{what} = {count} is not divisible by tensor_parallel = {ways}")
    return count // ways


class MultiHeadAttention(Part, tag_field="kind", tag="multi_head"):
    """Softmax attention with one KV head per group of heads: MHA, GQA, MQA."""

    num_heads: Positive
    num_kv_heads: Positive
    head_dim: Positive                          # of queries and keys
    value_head_dim: Count = 0                   # 0: as head_dim
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"     # one weight per head_dim, or per element of all heads
    output_gate: bool = False                   # the query projection is doubled: a gate on the attention output
    sinks: bool = False                         # one learned logit per head
    key_is_value: bool = False                  # values are the unnormalised keys: no value projection

    def __post_init__(self):
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads = {self.num_heads} is not a multiple of num_kv_heads = {self.num_kv_heads}")

    @property
    def value_dim(self) -> int:
        """Width of one value head."""
        return self.value_head_dim or self.head_dim

    @property
    def kv_elements_per_token(self) -> int:
        """Elements a token leaves in one layer's KV cache: key and value per KV head."""
        return self.num_kv_heads * (self.head_dim + self.value_dim)

    @property
    def flops_per_context_token(self) -> int:
        """FLOPs of a query token per token it attends to: q.k, p.v; multiply-add: 2."""
        return 2 * self.num_heads * (self.head_dim + self.value_dim)

    @property
    def decode_flops_per_context_token(self) -> int:
        """FLOPs per context token in a decode step; differs only for latent attention."""
        return self.flops_per_context_token

    def matrix_parameters(self, hidden_size: int) -> int:
        """Count the weights of the q, k, v and o projections."""
        queries = self.num_heads * self.head_dim * (2 if self.output_gate else 1)
        keys = self.num_kv_heads * self.head_dim
        values = 0 if self.key_is_value else self.num_kv_heads * self.value_dim
        return hidden_size * (queries + keys + values + self.num_heads * self.value_dim)

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections, biases, query and key norms, sinks."""
        heads = self.num_heads + self.num_kv_heads
        norm = {"none": 0, "head": 2, "full": heads}[self.qk_norm] * self.head_dim
        bias = (heads * self.head_dim + self.num_kv_heads * self.value_dim) * self.qkv_bias
        bias += hidden_size * self.output_bias
        return self.matrix_parameters(hidden_size) + bias + norm + self.num_heads * self.sinks

    def shard(self, tensor_parallel: int) -> "MultiHeadAttention":
        """Return a rank's share; KV heads fewer than ranks are replicated, as in vLLM."""
        kv_heads = self.num_kv_heads
        if tensor_parallel > kv_heads:
            divide(tensor_parallel, kv_heads, "tensor_parallel beyond num_kv_heads")
        return replace(
            self,
            num_heads=divide(self.num_heads, tensor_parallel, "num_heads"),
            num_kv_heads=divide(kv_heads, tensor_parallel, "num_kv_heads") if tensor_parallel <= kv_heads else 1)


class Indexer(Part):
    """DeepSeek sparse attention: picks the `top_k` tokens a query attends to."""

    num_heads: Positive
    head_dim: Positive
    top_k: Positive

    def num_parameters(self, hidden_size: int, query_rank: int) -> int:
        """Count query and key projections, the key's LayerNorm, and head weights."""
        return (query_rank * self.num_heads * self.head_dim + hidden_size * self.head_dim + 2 * self.head_dim
                + hidden_size * self.num_heads)


class LatentAttention(Part, tag_field="kind", tag="multi_head_latent"):
    """Multi-head latent attention (MLA): all heads share one latent per token.

    Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.
    """

    num_heads: Positive
    query_rank: Count                           # q_lora_rank; 0: queries are projected directly
    kv_rank: Positive                           # kv_lora_rank
    nope_head_dim: Positive                     # qk_nope_head_dim: query and key dims without position
    rope_head_dim: Positive                     # qk_rope_head_dim: rotary dims; the key's serve all heads
    value_head_dim: Positive                    # v_head_dim
    indexer: Indexer | None = None

    @property
    def num_kv_heads(self) -> int:
        """One latent serves all heads, so tensor parallelism replicates it."""
        return 1

    @property
    def head_dim(self) -> int:
        """Width of a query or key head once expanded."""
        return self.nope_head_dim + self.rope_head_dim

    @property
    def value_dim(self) -> int:
        """Width of one value head."""
        return self.value_head_dim

    @property
    def kv_elements_per_token(self) -> int:
        """Elements a token leaves in one layer's KV cache: latent and rotary key."""
        return self.kv_rank + self.rope_head_dim

    @property
    def flops_per_context_token(self) -> int:
        """FLOPs of a query token per context token, keys and values expanded."""
        return 2 * self.num_heads * (self.head_dim + self.value_head_dim)

    @property
    def decode_flops_per_context_token(self) -> int:
        """FLOPs per context token in a decode step, on the latent (absorbed projections)."""
        return 2 * self.num_heads * (2 * self.kv_rank + self.rope_head_dim)

    def replicated_parameters(self, hidden_size: int) -> int:
        """Count the down-projections, which every tensor-parallel rank holds whole."""
        return hidden_size * (self.query_rank + self.kv_rank + self.rope_head_dim)

    def matrix_parameters(self, hidden_size: int) -> int:
        """Count the weights of the down, up and output projections."""
        queries = (self.query_rank or hidden_size) * self.num_heads * self.head_dim
        keys_values = self.kv_rank * self.num_heads * (self.nope_head_dim + self.value_head_dim)
        output = self.num_heads * self.value_head_dim * hidden_size
        return self.replicated_parameters(hidden_size) + queries + keys_values + output

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections, the norms of both latents, the indexer."""
        indexer = self.indexer.num_parameters(hidden_size, self.query_rank) if self.indexer else 0
        return self.matrix_parameters(hidden_size) + self.query_rank + self.kv_rank + indexer

    def shard(self, tensor_parallel: int) -> "LatentAttention":
        """Return a rank's share: heads are split, latents and indexer whole."""
        return replace(self, num_heads=divide(self.num_heads, tensor_parallel, "num_heads"))


class GatedDeltaNet(Part, tag_field="kind", tag="gated_delta_net"):
    """Linear attention of Qwen3-Next. Source: arXiv 2412.06464 (Gated DeltaNet)."""

    num_key_heads: Positive
    num_value_heads: Positive
    key_head_dim: Positive
    value_head_dim: Positive
    conv_kernel: Positive

    @property
    def _widths(self) -> tuple[int, int]:
        return self.num_key_heads * self.key_head_dim, self.num_value_heads * self.value_head_dim

    @property
    def state_elements(self) -> int:
        """Elements of state a sequence keeps in one layer, convolution included."""
        keys, values = self._widths
        convolution = (2 * keys + values) * (self.conv_kernel - 1)
        return self.num_value_heads * self.key_head_dim * self.value_head_dim + convolution

    def matrix_parameters(self, hidden_size: int) -> int:
        """Count projections q, k, v, gate, output, and two gates per value head."""
        keys, values = self._widths
        return hidden_size * (2 * keys + 3 * values + 2 * self.num_value_heads)

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections, convolution, decay and step biases, output norm."""
        keys, values = self._widths
        small = (2 * keys + values) * self.conv_kernel + 2 * self.num_value_heads + self.value_head_dim
        return self.matrix_parameters(hidden_size) + small

    def shard(self, tensor_parallel: int) -> "GatedDeltaNet":
        """Return one rank's share of the heads."""
        return replace(
            self,
            num_key_heads=divide(self.num_key_heads, tensor_parallel, "linear_attention.num_key_heads"),
            num_value_heads=divide(self.num_value_heads, tensor_parallel, "linear_attention.num_value_heads"))


class LightningAttention(Part, tag_field="kind", tag="lightning"):
    """Linear attention of MiniMax-Text-01. Source: arXiv 2501.08313, section 2.2."""

    num_heads: Positive
    head_dim: Positive

    @property
    def state_elements(self) -> int:
        """Elements of recurrent state one sequence keeps in one layer."""
        return self.num_heads * self.head_dim * self.head_dim

    def matrix_parameters(self, hidden_size: int) -> int:
        """Count the projections q, k, v, output gate and output."""
        return 5 * hidden_size * self.num_heads * self.head_dim

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections and the output norm."""
        return self.matrix_parameters(hidden_size) + self.num_heads * self.head_dim

    def shard(self, tensor_parallel: int) -> "LightningAttention":
        """Return one rank's share of the heads."""
        return replace(self, num_heads=divide(self.num_heads, tensor_parallel, "linear_attention.num_heads"))


class Mamba2(Part, tag_field="kind", tag="mamba2"):
    """State-space layer of Nemotron. Source: arXiv 2405.21060 (Mamba-2), section 7."""

    num_heads: Positive
    head_dim: Positive
    num_groups: Positive
    state_size: Positive
    conv_kernel: Positive
    conv_bias: bool = True

    @property
    def _widths(self) -> tuple[int, int]:
        inner = self.num_heads * self.head_dim
        return inner, inner + 2 * self.num_groups * self.state_size

    @property
    def state_elements(self) -> int:
        """Elements of state a sequence keeps in one layer, convolution included."""
        inner, convolved = self._widths
        return inner * self.state_size + convolved * (self.conv_kernel - 1)

    def matrix_parameters(self, hidden_size: int) -> int:
        """Count the projections in (gate, x, B, C, step per head) and out."""
        inner, convolved = self._widths
        return hidden_size * (2 * inner + convolved + self.num_heads)

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections, convolution, norm, A, D, step bias a head."""
        inner, convolved = self._widths
        small = convolved * (self.conv_kernel + self.conv_bias) + 3 * self.num_heads + inner
        return self.matrix_parameters(hidden_size) + small

    def shard(self, tensor_parallel: int) -> "Mamba2":
        """Return a rank's share; groups fewer than ranks are replicated."""
        heads, groups = divide(self.num_heads, tensor_parallel, "linear_attention.num_heads"), 1
        if tensor_parallel <= self.num_groups:
            groups = divide(self.num_groups, tensor_parallel, "linear_attention.num_groups")
        return replace(self, num_heads=heads, num_groups=groups)


class Mlp(Part):
    """Dense feed-forward network: up (and gate) and down projection."""

    intermediate_size: Positive
    gated: bool = True                          # SwiGLU, GeGLU: three matrices; else two
    bias: bool = False

    @property
    def num_matrices(self) -> int:
        """Return 3 for a gated network, else 2."""
        return 3 if self.gated else 2

    def matrix_parameters(self, hidden_size: int) -> int:
        """Count the weights of the projections."""
        return self.num_matrices * hidden_size * self.intermediate_size

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections and biases."""
        bias = ((self.num_matrices - 1) * self.intermediate_size + hidden_size) * self.bias
        return self.matrix_parameters(hidden_size) + bias

    def shard(self, tensor_parallel: int) -> "Mlp":
        """Return one rank's share of the intermediate size."""
        return replace(self, intermediate_size=divide(self.intermediate_size, tensor_parallel, "intermediate_size"))


class Moe(Part):
    """Mixture of experts: a router picks some, shared ones see every token."""

    num_experts: Positive
    experts_per_token: Positive
    intermediate_size: Positive                 # of one routed expert
    shared_intermediate_size: Count = 0         # of all shared experts together; 0: none
    shared_expert_gate: bool = False            # a sigmoid gate on the shared expert
    gated: bool = True
    expert_bias: bool = False
    router_bias: bool = False                   # a bias per expert, also the load-balancing correction of DeepSeek-V3
    num_groups: Positive = 1                    # of experts that follow one another: see experts/eplb.py

    def __post_init__(self):
        if self.num_experts % self.num_groups:
            raise ValueError(f"num_groups = {self.num_groups} does not divide num_experts = {self.num_experts}")
        if self.experts_per_token > self.num_experts:
            raise ValueError(f"experts_per_token = {self.experts_per_token} is above num_experts = {self.num_experts}")

    @property
    def expert(self) -> Mlp:
        """One routed expert."""
        return Mlp(intermediate_size=self.intermediate_size, gated=self.gated, bias=self.expert_bias)

    @property
    def shared_expert(self) -> Mlp | None:
        """All shared experts as one network, or None."""
        if not self.shared_intermediate_size:
            return None
        return Mlp(intermediate_size=self.shared_intermediate_size, gated=self.gated)

    def router_parameters(self, hidden_size: int) -> int:
        """Count router, its bias and the shared gate; unquantised, on every rank."""
        return self.num_experts * (hidden_size + self.router_bias) + hidden_size * self.shared_expert_gate

    def shared_parameters(self, hidden_size: int) -> int:
        """Count the shared experts."""
        return self.shared_expert.num_parameters(hidden_size) if self.shared_expert else 0

    def matrix_parameters(self, hidden_size: int) -> int:
        """Count the weights of the projections of all experts, shared ones included."""
        shared = self.shared_expert.matrix_parameters(hidden_size) if self.shared_expert else 0
        return self.num_experts * self.expert.matrix_parameters(hidden_size) + shared

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: experts, shared experts, router."""
        return self._parameters(hidden_size, self.num_experts)

    def active_parameters(self, hidden_size: int) -> int:
        """Count the weights one token uses."""
        return self._parameters(hidden_size, self.experts_per_token)

    def _parameters(self, hidden_size: int, experts: int) -> int:
        routed = experts * self.expert.num_parameters(hidden_size)
        return routed + self.shared_parameters(hidden_size) + self.router_parameters(hidden_size)


LinearAttention = GatedDeltaNet | LightningAttention | Mamba2
Attention = MultiHeadAttention | LatentAttention
