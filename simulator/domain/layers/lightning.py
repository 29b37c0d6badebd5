"""Lightning attention of MiniMax."""
from msgspec.structs import replace

from simulator.domain.layers.base import Matrix, Positive, StateDtype, divide
from simulator.domain.layers.mixers import RecurrentState


class LightningAttention(RecurrentState, tag_field="kind", tag="lightning"):
    """Linear attention of MiniMax-Text-01. Source: arXiv 2501.08313, section 2.2."""

    title = "lightning attention"
    flops_per_state_element = 4                 # of a token: update and read out

    num_heads: Positive
    head_dim: Positive
    state_dtype: StateDtype | None = None       # of the recurrence; None: the model's

    recurrence_elements = property(lambda self: self.num_heads * self.head_dim * self.head_dim)
    output_width = property(lambda self: self.num_heads * self.head_dim)

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projections q, k, v; output gate; output."""
        width = self.output_width
        return [Matrix("in_qkv", 3 * width, hidden_size), Matrix("gate", width, hidden_size),
                Matrix("out", hidden_size, width)]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections and the output norm."""
        return self.matrix_parameters(hidden_size) + self.num_heads * self.head_dim

    def shard(self, tensor_parallel: int) -> "LightningAttention":
        """Return one rank's share of the heads."""
        return replace(self, num_heads=divide(self.num_heads, tensor_parallel, "linear_attention.num_heads"))
