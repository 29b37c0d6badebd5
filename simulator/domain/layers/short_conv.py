"""Short convolutions of LFM2."""
from typing import ClassVar

from msgspec.structs import replace

from simulator.domain.layers.base import Matrix, Positive, divide
from simulator.domain.layers.mixers import RecurrentState


class ShortConvolution(RecurrentState, tag_field="kind", tag="short_conv"):
    """A convolution of some tokens between two gates, in place of attention.

    Source: Hugging Face's transformers, models/lfm2 (Lfm2ShortConv); state: vLLM 0.33, mamba/short_conv.py.
    """

    title = "short convolution"
    kernels, between_kernels = 5, 4             # norm, product, gate, convolution, gate and product
    recurrence_elements: ClassVar[int] = 0

    width: Positive                             # of the model
    conv_kernel: Positive
    conv_bias: bool = False

    output_width = property(lambda self: self.width)
    convolution = property(lambda self: (self.width, self.conv_kernel))
    state_flops_per_token = property(lambda self: 2 * self.width * self.conv_kernel)

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projections in (two gates and x) and out."""
        return [Matrix("in", 3 * self.width, hidden_size), Matrix("out", hidden_size, self.width)]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections and the convolution."""
        return self.matrix_parameters(hidden_size) + self.width * (self.conv_kernel + self.conv_bias)

    def shard(self, tensor_parallel: int) -> "ShortConvolution":
        """Return one rank's share of the channels."""
        return replace(self, width=divide(self.width, tensor_parallel, "linear_attention.width"))
