"""Kimi Delta Attention of Kimi-Linear, Kimi-K3, GLM-5.3-Flash and Ling-3."""
from typing import Literal

from msgspec.structs import replace

from simulator.domain.layers.base import Count, Matrix, Positive, Product, divide
from simulator.domain.layers.mixers import RecurrentState


class KimiDeltaAttention(RecurrentState, tag_field="kind", tag="kda"):
    """Linear attention with a decay of its own for each element of the keys.

    Source: arXiv 2510.26692 (Kimi Linear), section 3; format of the recurrence: vLLM 0.33,
    vllm/model_executor/layers/mamba/mamba_utils.py, kda_state_dtype.
    """

    title = "Kimi delta attention"

    num_heads: Positive
    head_dim: Positive                          # of queries, keys and values
    conv_kernel: Positive
    forget_rank: Count = 0                      # of the gate that forgets: through so many elements; 0: full rank
    gate_rank: Count = 0                        # of the gate on the output, the same
    state_dtype: Literal["float32", "bfloat16"] = "float32"     # of the recurrence

    output_width = property(lambda self: self.num_heads * self.head_dim)
    convolution = property(lambda self: (3 * self.output_width, self.conv_kernel))
    recurrence_elements = property(lambda self: self.output_width * self.head_dim)

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projections q, k, v; gates; one weight of an update per head; output."""
        width = self.output_width
        return [Matrix("in_qkv", 3 * width, hidden_size),
                *_gate("forget", self.forget_rank, width, hidden_size),
                Matrix("in_beta", self.num_heads, hidden_size),
                *_gate("gate", self.gate_rank, width, hidden_size), Matrix("out", hidden_size, width)]

    def products(self, hidden: int) -> list[Product]:
        """Return the products of the matrices, those that read the hidden state as one."""
        matrices = self.matrices(hidden)
        inputs = sum(each.outputs for each in matrices if not each.name.endswith(("_b", "out")))
        return [Product("qkv", inputs, hidden),
                *(Product(each.name, each.outputs, each.inputs) for each in matrices if each.name.endswith("_b")),
                Product("attention_out", hidden, self.output_width)]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections, convolutions, biases, decays, output norm."""
        width = self.output_width
        small = 3 * width * self.conv_kernel + width + self.num_heads + self.head_dim
        return self.matrix_parameters(hidden_size) + small

    def shard(self, tensor_parallel: int) -> "KimiDeltaAttention":
        """Return one rank's share of the heads; low ranks of gates are whole."""
        return replace(self, num_heads=divide(self.num_heads, tensor_parallel, "linear_attention.num_heads"))


def _gate(name: str, rank: int, width: int, hidden: int) -> list[Matrix]:
    """Return the matrices of a gate: one, or two through `rank` elements."""
    if rank == 0:
        return [Matrix(name, width, hidden)]
    return [Matrix(f"{name}_a", rank, hidden), Matrix(f"{name}_b", width, rank)]
