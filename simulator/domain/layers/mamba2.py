"""Mamba-2 of Nemotron-H and Nemotron-3."""
from msgspec.structs import replace

from simulator.domain.layers.base import Matrix, Positive, StateDtype, divide
from simulator.domain.layers.mixers import RecurrentState


class Mamba2(RecurrentState, tag_field="kind", tag="mamba2"):
    """State-space layer of Nemotron. Source: arXiv 2405.21060 (Mamba-2), section 7."""

    writes_states = True                        # vLLM 0.32.0, vllm/model_executor/layers/mamba/mamba_mixer2.py

    num_heads: Positive
    head_dim: Positive
    num_groups: Positive
    state_size: Positive
    conv_kernel: Positive
    conv_bias: bool = True
    state_dtype: StateDtype | None = None       # of the recurrence; None: the model's, as that of the convolution

    @property
    def _widths(self) -> tuple[int, int]:
        inner = self.num_heads * self.head_dim
        return inner, inner + 2 * self.num_groups * self.state_size

    @property
    def state_elements(self) -> int:
        """Elements of state, convolution included."""
        inner, convolved = self._widths
        return inner * self.state_size + convolved * (self.conv_kernel - 1)

    output_width = property(lambda self: self.num_heads * self.head_dim)
    convolution = property(lambda self: (self._widths[1], self.conv_kernel))

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projections in (gate, x, B, C, step per head) and out."""
        inner, convolved = self._widths
        return [Matrix("in", inner + convolved + self.num_heads, hidden_size), Matrix("out", hidden_size, inner)]

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
