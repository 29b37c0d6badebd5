"""Encoders of images in front of a language model: their shape, their weights on a rank and their work."""
from typing import Literal, NamedTuple

from simulator.domain.layers.base import Count, Part, Positive

Kind = Literal["qwen2_vl", "qwen3_vl", "kimi_k25", "gemma3", "gemma4", "pixtral", "llama4", "minimax_m3", "step3p7"]


class View(NamedTuple):
    """Equal sets of patches; the patches of a set attend to each other alone.

    patches : of one set. count : number of sets.
    """

    patches: int
    count: int = 1


def amounts(views: tuple[View, ...]) -> tuple[int, int]:
    """Return the patches of an image, and the pairs that attend to each other."""
    return (sum(view.patches * view.count for view in views), sum(view.patches ** 2 * view.count for view in views))


class Tower(Part, frozen=True, kw_only=True):
    """A vision tower with its projector, [vision] of a model."""

    kind: Kind                                  # rule by which pixels become patches, and patches tokens
    num_layers: Positive
    width: Positive
    intermediate_size: Positive
    num_heads: Positive
    gated: bool = False                         # three matrices in an MLP instead of two
    patch_size: Positive                        # pixels of a side
    merge_size: Positive = 1                    # patches of a side that become one token
    frames: Positive = 1                        # frames of a video behind a patch
    window: Count = 0                           # patches that attend to each other in most layers; 0: all do
    num_full_layers: Count = 0                  # with a window: layers without
    levels: Positive = 1                        # vectors of a token: deepstack adds to several layers of the model
    image_size: Count = 0                       # pixels of a side, of an image, a tile or the longest side; 0: free
    image_tokens: Count = 0                     # most tokens of an image; 0: as many as its size gives
    projector: Count = 0                        # weights of the matrices that a token passes behind the blocks
    split_parameters: Count = 0                 # weights that tensor-parallel ranks divide; each holds all others

    head_dim = property(lambda self: self.width // self.num_heads)
    block_parameters = property(lambda self: (
        4 * self.width ** 2 + (3 if self.gated else 2) * self.width * self.intermediate_size))

    @property
    def layer_windows(self) -> list[tuple[int, int]]:
        """Patches that attend to each other (0: all), and the number of such layers."""
        full = self.num_full_layers if self.window else self.num_layers
        return [kind for kind in ((0, full), (self.window, self.num_layers - full)) if kind[1]]

    def flops(self, views: tuple[View, ...], tokens: int) -> float:
        """Return the operations of encoding an image, or a video."""
        patches, pairs = amounts(views)
        return self.product_flops(patches, tokens) + self.attention_flops(patches, pairs)

    def product_flops(self, patches, tokens):
        """Return the operations of products, of patches and in the projector.

        Twice the weights that a patch or a token passes. Counts, or arrays of counts.
        """
        inputs = 3 * self.frames * self.patch_size ** 2
        return 2.0 * patches * (self.num_layers * self.block_parameters + inputs * self.width) + (
            2.0 * tokens * self.projector)

    def attention_flops(self, patches, pairs):
        """Return the operations of attention: 4 w for each pair, scores and values.

        pairs : of patches that attend to each other without windows; with them each attends to a window. Counts, or
        arrays of counts.
        """
        return 4.0 * self.width * sum(layers * (patches * window if window else pairs)
                                      for window, layers in self.layer_windows)

    def moved_elements(self, patches, tokens):
        """Return the activations that are read and written.

        Of a block: two norms (2 w in, 2 w out), q, k, v and o (w in, 3 w out, w in, w out), attention (3 w in, w out),
        the MLP (w in, i out, i in, w out; twice i out if gated) and two residuals (4 w in, 2 w out).
        """
        inner = self.intermediate_size * (4 if self.gated else 2)
        blocks = patches * self.num_layers * (22.0 * self.width + inner)
        return blocks + tokens * 2.0 * self.merge_size ** 2 * self.width

    def rank_parameters(self, parameters: float, ranks: int) -> float:
        """Return the weights, of all `parameters`, that one of `ranks` ranks holds.

        Source: vLLM 0.33.0, mm_encoder_tp_mode "weights", its default: the linear layers of most towers are column and
        row parallel; patches, positions, norms and a few projectors are whole on every rank.
        """
        return parameters - self.split_parameters * (1 - 1 / ranks)
