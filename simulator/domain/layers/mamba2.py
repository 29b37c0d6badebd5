"""Mamba-2 of Nemotron-H, Nemotron-3, Granite 4 and Falcon-H1."""
from msgspec.structs import replace

from simulator.domain.layers.base import Count, Matrix, Positive, StateDtype, divide
from simulator.domain.layers.mixers import RecurrentState


class Mamba2(RecurrentState, tag_field="kind", tag="mamba2"):
    """State-space layer with one decay per head.

    Source: arXiv 2405.21060 (Mamba-2), section 7.
    """

    title = "Mamba-2"
    writes_states = True                        # vLLM 0.32.0, vllm/model_executor/layers/mamba/mamba_mixer2.py

    num_heads: Positive
    head_dim: Positive
    num_groups: Positive
    state_size: Positive
    conv_kernel: Positive
    conv_bias: bool = True
    projection_bias: bool = False               # of in and out
    output_norm: bool = True                    # before the output projection, an element each: mamba_rms_norm
    chunk_size: Count = 0                       # tokens that prompts scan at once; 0: without the scan's FLOPs
    state_dtype: StateDtype | None = None       # of the recurrence; None: the model's, as that of the convolution

    @property
    def _widths(self) -> tuple[int, int]:
        inner = self.num_heads * self.head_dim
        return inner, inner + 2 * self.num_groups * self.state_size

    @property
    def state_flops_per_token(self) -> int:
        """FLOPs of a token on the state, and with the tokens of its chunk.

        The latter are products: section 6 of the source.
        """
        scan = self.chunk_size * (self._widths[0] + self.num_groups * self.state_size)
        return self.flops_per_state_element * self.recurrence_elements + 2 * scan

    recurrence_elements = property(lambda self: self._widths[0] * self.state_size)
    output_width = property(lambda self: self.num_heads * self.head_dim)
    convolution = property(lambda self: (self._widths[1], self.conv_kernel))

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projections in (gate, x, B, C, step per head) and out."""
        inner, convolved = self._widths
        return [Matrix("in", inner + convolved + self.num_heads, hidden_size), Matrix("out", hidden_size, inner)]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections, convolution, norm, A, D, step bias a head."""
        inner, convolved = self._widths
        small = convolved * (self.conv_kernel + self.conv_bias) + 3 * self.num_heads + inner * self.output_norm
        small += self.projection_bias * (inner + convolved + self.num_heads + hidden_size)
        return self.matrix_parameters(hidden_size) + small

    def shard(self, tensor_parallel: int) -> "Mamba2":
        """Return a rank's share; one group is repeated on all ranks, several must divide.

        Source: vLLM 0.33, vllm/model_executor/layers/mamba/mamba_mixer2.py, MambaMixer2.
        """
        groups = self.num_groups
        return replace(
            self, num_heads=divide(self.num_heads, tensor_parallel, "linear_attention.num_heads"),
            num_groups=divide(groups, tensor_parallel, "linear_attention.num_groups") if groups > 1 else 1)
