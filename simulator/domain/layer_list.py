"""The layers of a model: each a tuple of token mixers and of networks, equal ones counted once.

A layer may have one sublayer (Nemotron-H), two (most models), mixers side by side (Falcon-H1), or several of both
(LongCat-Flash). Files of models name the parts of each layer in [[layer_kinds]], or follow `layer_pattern`.
"""
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from msgspec import Meta

from simulator.domain.layer_spec import Around, Attention, LinearAttention
from simulator.domain.layers.base import MAX_LAYERS, Count, Part
from simulator.domain.layers.mixers import Mixer
from simulator.domain.layers.networks import Linear, Mlp, Moe

Number = Annotated[int, Meta(ge=0, lt=MAX_LAYERS)]


class NamedPart(Part):
    """A part that [[layer_kinds]] name: a mixer, a network, or a part around these."""

    mixer: Attention | LinearAttention | None = None
    window: Count = 0                           # tokens that the mixer attends to; 0: the whole context
    chunked: bool = False                       # the window is the aligned chunk that a token is in
    mlp: Mlp | None = None
    moe: Moe | None = None
    linear: Linear | None = None
    around: Around | None = None

    def __post_init__(self):
        parts = self.mixer, self.mlp, self.moe, self.linear, self.around
        if sum(part is not None for part in parts) != 1:
            raise ValueError("expected one of mixer, mlp, moe, linear and around")
        if (self.window or self.chunked) and (self.mixer is None or self.is_recurrent):
            raise ValueError(f"window = {self.window}: only a mixer that attends to a context has one")
        if self.chunked and not self.window:
            raise ValueError("chunked = true: window, the tokens of a chunk, is missing")

    @property
    def is_recurrent(self) -> bool:
        """Whether it is a mixer that keeps a state of fixed size in place of KV."""
        return self.mixer is not None and self.mixer.backend == "state"

    @property
    def other(self) -> Part | None:
        """The part that is no mixer."""
        return self.mlp or self.moe or self.linear or self.around


class LayerParts(Part):
    """Layers with equal parts, of [[layer_kinds]].

    parts : names of [parts], or of the tables attention, sliding_attention, linear_attention, mlp and moe; a name
        given twice is two sublayers.
    norms : over the hidden size, of each layer; None: norms_per_layer.
    """

    layers: Annotated[tuple[Number, ...], Meta(min_length=1)]
    parts: tuple[str, ...] = ()
    norms: Annotated[int, Meta(ge=0, le=64)] | None = None


class PlacedMixer(NamedTuple):
    """A token mixer at its place: how much of the context its layers attend to."""

    part: Mixer
    window: int = 0             # tokens; 0: all
    chunked: bool = False

    @property
    def kind(self) -> str:
        """Kind of its layers: full_attention, sliding_attention or linear_attention."""
        if self.part.backend == "state":
            return "linear_attention"
        return "sliding_attention" if self.window else "full_attention"

    @property
    def group_kind(self) -> str:
        """Kind of its groups of KV blocks."""
        return self.part.group_kind(self if self.window else None)


class Layer(NamedTuple):
    """The parts of a layer, and its norms over the hidden size."""

    mixers: tuple[PlacedMixer, ...] = ()
    networks: tuple[Mlp | Moe | Linear, ...] = ()
    norms: int = 2
    around: tuple[Part, ...] = ()

    @property
    def moe(self) -> Moe | None:
        """Its experts, or None."""
        return next((part for part in self.networks if part.has_experts), None)

    @property
    def dense_networks(self) -> tuple[Mlp, ...]:
        """Its networks without experts."""
        return tuple(part for part in self.networks if not part.has_experts)

    @property
    def mixer_kind(self) -> str:
        """Kind of its first mixer; feed_forward: it has none."""
        return self.mixers[0].kind if self.mixers else "feed_forward"

    @property
    def network_kind(self) -> str:
        """Its networks: dense, moe, both, or none."""
        if self.moe is None:
            return "dense" if self.networks else "none"
        return "both" if self.dense_networks else "moe"

    @property
    def num_sublayers(self) -> int:
        """Number of sums over tensor-parallel ranks: after each mixer and network.

        Dense networks beside experts are one.
        """
        return len(self.mixers) + max(len(self.dense_networks), self.moe is not None)

    def named_parts(self) -> list[tuple[str, Part]]:
        """Return the parts that all tokens pass.

        Their names are those of `Quantization.unquantized`.
        """
        shared = [("shared_experts", part) for each in self.networks if each.has_experts
                  for part in each.dense_parts]
        return ([("attention", mixer.part) for mixer in self.mixers]
                + [("mlp", part) for part in self.dense_networks] + shared + [("around", part) for part in self.around])

    def num_parameters(self, hidden: int, norm_parameters: int) -> int:
        """Count its weights; `norm_parameters`: of one norm."""
        parts = [*(mixer.part for mixer in self.mixers), *self.networks, *self.around]
        return sum(part.num_parameters(hidden) for part in parts) + self.norms * norm_parameters


def listed_faults(kinds: Sequence[LayerParts], names: Sequence[str], num_layers: int) -> list[str]:
    """Return why `kinds` do not give each of the layers its parts.

    names : of the parts that are there.
    """
    faults, seen = [], [layer for kind in kinds for layer in kind.layers]
    if sorted(seen) != list(range(num_layers)):
        twice = sorted({layer for layer in seen if seen.count(layer) > 1})[:5]
        absent = sorted(set(range(num_layers)) - set(seen))[:5]
        beyond = sorted(layer for layer in seen if layer >= num_layers)[:5]
        found = {"twice": twice, "absent": absent, "not there": beyond}
        faults.append(f"layer_kinds: expected each layer from 0 to {num_layers - 1} once; "
                      + "; ".join(f"{what}: {', '.join(map(str, layers))}" for what, layers in found.items() if layers))
    for name in dict.fromkeys(name for kind in kinds for name in kind.parts if name not in names):
        faults.append(f'layer_kinds: no part "{name}"; there are {", ".join(names)}')
    return faults
