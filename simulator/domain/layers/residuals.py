"""Parts around those of a layer, in place of a plain residual: hyper-connections, residuals that attend, AltUp.

Each is a `Part` of one layer, with the weights and the work of all its sites there; `head_parameters` are the weights
of the same scheme that a model has once.
"""
from typing import ClassVar

from msgspec.structs import replace

from simulator.domain.layers.base import Count, Matrix, Part, Positive, Product, Small, divide


class Whole(Part):
    """Base of parts that each rank holds whole."""

    is_around = True
    title: ClassVar[str]
    between_kernels: ClassVar[int]              # that only move memory, of a layer

    def stream_operator(self, hidden: int) -> Small:
        """Return one operator of equal kernels for the moved elements of a layer."""
        return Small(self.price_key, self.moved_elements(hidden), self.between_kernels)

    def head_parameters(self, hidden: int) -> int:
        """Count the weights of the scheme that a model has once."""
        return 0

    def shard(self, tensor_parallel: int) -> "Whole":
        """Return the part."""
        return self

    def products(self, hidden: int) -> list[Product]:
        """Return a product for each matrix."""
        return [Product(each.name, each.outputs, each.inputs) for each in self.matrices(hidden) if each.outputs]


class HyperConnections(Whole, tag_field="kind", tag="hyper_connections"):
    """Hyper-connections: a residual of `streams` vectors, mixed around each part.

    They are manifold-constrained in DeepSeek-V4. Weights are float32 and are never quantised. Source: arXiv
    2512.24880; Hugging Face's transformers, models/deepseek_v4 (DeepseekV4HyperConnection); models/hy_v4,
    which does not mix the streams with one another.
    """

    title = "hyper-connections"

    streams: Positive
    mixes: bool = True                          # streams with one another: a matrix of streams x streams
    sites: Positive = 2                         # of a layer
    has_head: bool = True                       # weights of their own join the streams before the last norm

    rows = property(lambda self: self.streams * (2 + self.streams * self.mixes))
    between_kernels = property(lambda self: 2 * self.sites)        # before and after a part

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return none that may be quantised."""
        return []

    def products(self, hidden: int) -> list[Product]:
        """Return the product with all streams, of each site."""
        return [Product("hyper_connection", self.rows, self.streams * hidden, is_quantized=False)] * self.sites

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights of a layer: at a site a product, offsets and scales."""
        return self.sites * (self.rows * (self.streams * hidden_size + 1) + 2 + self.mixes)

    def head_parameters(self, hidden_size: int) -> int:
        """Count the weights that join the streams at the end of the model."""
        return self.streams * (self.streams * hidden_size + 1) + 1 if self.has_head else 0

    def inner_elements(self, hidden: int) -> int:
        """Return the elements of all streams, alive beside those of the part."""
        return self.streams * hidden

    def moved_elements(self, hidden: int) -> int:
        """Return the elements that a token moves.

        Before a part the streams are read and one written; after it both are read, and the streams written.
        """
        return self.sites * (3 * self.streams + 2) * hidden


class AttentionResiduals(Whole, tag_field="kind", tag="attention_residuals"):
    """Each part reads a weighted sum of the outputs of blocks of layers before it.

    Source: Kimi-K3 in vLLM 0.33.
    """

    title = "residuals that attend"

    block_size: Positive                        # layers with outputs kept as one sum
    num_layers: Positive                        # of the model: layers read as many sums as there are blocks before them

    between_kernels = 2                         # one before each part
    mean_blocks = property(lambda self: sum(-(-layer // self.block_size) for layer in range(1, self.num_layers + 1))
                           / self.num_layers)

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return none."""
        return []

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights of a layer: a query and a norm at both sites."""
        return 4 * hidden_size

    def head_parameters(self, hidden_size: int) -> int:
        """Count the weights at the end of the model."""
        return 2 * hidden_size

    def inner_elements(self, hidden: int) -> float:
        """Return the elements of the kept sums at the end of the model."""
        return -(-self.num_layers // self.block_size) * hidden

    def moved_elements(self, hidden: int) -> float:
        """Return the elements that a token moves at both sites: sums, and their sum."""
        return 2 * (self.mean_blocks + 1) * hidden


class AltUp(Whole, tag_field="kind", tag="alt_up"):
    """Alternating updates with a low-rank path beside attention (Laurel).

    Of `streams` residuals a layer computes one and corrects the others by it. Source: arXiv 2301.13310; Hugging Face's
    transformers, models/gemma3n.
    """

    title = "alternating updates"

    streams: Positive
    laurel_rank: Count = 0                      # of the path beside attention; 0: there is none

    between_kernels = property(lambda self: 2 + (self.laurel_rank > 0))     # predict, correct; norm of the path

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projections of the low-rank path."""
        return [Matrix("laurel_left", self.laurel_rank, hidden_size),
                Matrix("laurel_right", hidden_size, self.laurel_rank)]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights of a layer.

        Coefficients, their router with its norm, the scale of outputs; the low-rank path with its norm.
        """
        streams = self.streams
        coefficients = streams * streams * (1 + streams) + hidden_size * (streams + 2)
        return self.matrix_parameters(hidden_size) + coefficients + hidden_size * (self.laurel_rank > 0)

    def head_parameters(self, hidden_size: int) -> int:
        """Count the projections of the embedding to the other streams, and back."""
        return 2 * (self.streams - 1) * hidden_size * hidden_size

    def shard(self, tensor_parallel: int) -> "AltUp":
        """Return a rank's share, which has a part of the low-rank path.

        Source: vLLM 0.33, vllm/model_executor/models/gemma3n.py.
        """
        return replace(self, laurel_rank=divide(self.laurel_rank, tensor_parallel, "laurel_rank"))

    def inner_elements(self, hidden: int) -> int:
        """Return the elements of all streams."""
        return self.streams * hidden + self.laurel_rank

    def moved_elements(self, hidden: int) -> int:
        """Return the elements that a token moves: streams predicted, then corrected."""
        return 4 * self.streams * hidden + 2 * hidden * (self.laurel_rank > 0)


class PerLayerInput(Whole, tag_field="kind", tag="per_layer_input"):
    """A layer's share of an embedding, gated by the hidden state and added to it.

    Source: Hugging Face's transformers, models/gemma3n and models/gemma4.
    """

    title = "inputs of each layer"

    width: Positive

    between_kernels = 2                         # gate, norm with sum

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the gate, and the projection to the hidden state."""
        return [Matrix("per_layer_gate", self.width, hidden_size),
                Matrix("per_layer_projection", hidden_size, self.width)]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights of a layer: projections and a norm."""
        return self.matrix_parameters(hidden_size) + hidden_size

    def inner_elements(self, hidden: int) -> int:
        """Return the gate, the gated input and its projection."""
        return 2 * self.width + hidden

    def moved_elements(self, hidden: int) -> int:
        """Return the elements of gate, embedding and product, normalised and added."""
        return 3 * self.width + 4 * hidden
