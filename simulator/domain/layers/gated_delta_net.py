"""Gated DeltaNet of Qwen3-Next and Qwen3.5."""
from msgspec.structs import replace

from simulator.domain.layers.base import Matrix, Positive, StateDtype, divide
from simulator.domain.layers.mixers import RecurrentState


class GatedDeltaNet(RecurrentState, tag_field="kind", tag="gated_delta_net"):
    """Linear attention of Qwen3-Next. Source: arXiv 2412.06464 (Gated DeltaNet).

    launches : those of prompts: three for projections and their order, convolution, gates, eight of the chunked rule
        (norms of queries and keys, sums of gates, products of keys, inverse, w and u, states, outputs), gated norm,
        output; sglang, layers/attention/linear/gdn_backend.py and fla/chunk.py, which vLLM has, too. Copies that make
        tensors contiguous are left out. Decodes alone have one kernel for gates and rule.
    """

    launches, prompt_launches, num_inputs = 15, 8, 2

    num_key_heads: Positive
    num_value_heads: Positive
    key_head_dim: Positive
    value_head_dim: Positive
    conv_kernel: Positive
    state_dtype: StateDtype | None = None       # of the recurrence; None: the model's, as that of the convolution

    output_width = property(lambda self: self.num_value_heads * self.value_head_dim)
    _widths = property(lambda self: (self.num_key_heads * self.key_head_dim, self.output_width))
    convolution = property(lambda self: (2 * self._widths[0] + self._widths[1], self.conv_kernel))
    recurrence_elements = property(lambda self: self.output_width * self.key_head_dim)

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projections q, k, v; gate; two gates per value head; output."""
        keys, values = self._widths
        return [Matrix("in_qkv", 2 * keys + values, hidden_size), Matrix("in_z", values, hidden_size),
                Matrix("in_ba", 2 * self.num_value_heads, hidden_size), Matrix("out", hidden_size, values)]

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
