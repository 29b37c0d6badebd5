"""Mamba of Jamba and of the models before Mamba-2."""
from msgspec.structs import replace

from simulator.domain.layers.base import Matrix, Positive, Product, StateDtype, divide
from simulator.domain.layers.mixers import RecurrentState


class Mamba1(RecurrentState, tag_field="kind", tag="mamba1"):
    """State-space layer with a step for each channel.

    Source: arXiv 2312.00752 (Mamba), section 3.
    """

    title = "Mamba"
    flops_per_state_element = 9                 # a step, decay and input of each element, its update, read out

    inner_size: Positive
    state_size: Positive
    step_rank: Positive                         # dt_rank
    conv_kernel: Positive
    conv_bias: bool = True
    projection_bias: bool = False               # of in and out
    inner_norms: bool = False                   # of step, B and C: Jamba
    state_dtype: StateDtype | None = None       # of the recurrence; None: the model's, as that of the convolution

    output_width = property(lambda self: self.inner_size)
    convolution = property(lambda self: (self.inner_size, self.conv_kernel))
    recurrence_elements = property(lambda self: self.inner_size * self.state_size)
    _selected = property(lambda self: self.step_rank + 2 * self.state_size)     # step, B and C of a token

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projections in (x, gate); to step, B and C; of the step; out."""
        return [Matrix("in", 2 * self.inner_size, hidden_size), Matrix("x", self._selected, self.inner_size),
                Matrix("step", self.inner_size, self.step_rank), Matrix("out", hidden_size, self.inner_size)]

    def products(self, hidden: int) -> list[Product]:
        """Return the products of the matrices."""
        names = {"in": "qkv", "out": "attention_out"}
        return [Product(names.get(each.name, each.name), each.outputs, each.inputs) for each in self.matrices(hidden)]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections, convolution, step bias, A, D, norms."""
        small = self.inner_size * (self.conv_kernel + self.conv_bias + self.state_size + 2)
        small += self.projection_bias * (2 * self.inner_size + hidden_size) + self.inner_norms * self._selected
        return self.matrix_parameters(hidden_size) + small

    def shard(self, tensor_parallel: int) -> "Mamba1":
        """Return one rank's share of the channels."""
        return replace(self, inner_size=divide(self.inner_size, tensor_parallel, "linear_attention.inner_size"))
