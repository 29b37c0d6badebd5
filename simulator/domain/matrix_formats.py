"""Formats of single matrices: in which layers a checkpoint stores them how, and the bytes that follow."""
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from simulator.domain.layer_list import Layer
from simulator.domain.layers.base import Count, Matrix, Part
from simulator.domain.stored_format import Format

Layers = Literal["all"] | tuple[Count, ...]
EXPERTS, HEAD = "experts", "lm_head"


class StoredMatrices(Part):
    """Matrices with one format, of [[quantization.matrices]].

    names : "PART.MATRIX" with the parts attention, mlp, shared_experts, experts, around, or "lm_head".
    """

    names: Annotated[tuple[str, ...], Meta(min_length=1)]
    format: Format
    layers: Layers = "all"


class LayerFormats(NamedTuple):
    """Equal layers, with equal formats of their matrices.

    formats : by name; a matrix without one is in the model's dtype.
    """

    layer: Layer
    formats: dict[str, Format]
    count: int

    def dense(self, hidden: int, ranks: int = 1) -> Iterator[tuple[str, Matrix, Format | None]]:
        """Yield part, matrix and format on one of `ranks`, experts left out."""
        for name, part in self.layer.named_parts():
            for matrix in part.shard(ranks).matrices(hidden):
                yield name, matrix, self.formats.get(f"{name}.{matrix.name}")

    def experts(self, hidden: int) -> Iterator[tuple[Matrix, Format | None]]:
        """Yield matrix and format of one routed expert."""
        if (moe := self.layer.moe) is not None:
            for matrix in moe.expert.matrices(moe.expert_width(hidden)):
                yield matrix, self.formats.get(f"{EXPERTS}.{matrix.name}")


def layer_formats(layers: Mapping[int, Layer] | Sequence[Layer], rows: tuple[StoredMatrices, ...],
                  numbers: range | None = None) -> list[LayerFormats]:
    """Return the formats of layers, by default of all; equal ones together."""
    listed = [None if row.layers == "all" else frozenset(row.layers) for row in rows]
    counts = Counter((layers[number], tuple(i for i, each in enumerate(listed) if each is None or number in each))
                     for number in numbers or range(len(layers)))
    return [LayerFormats(layer, {name: rows[i].format for i in chosen for name in rows[i].names}, count)
            for (layer, chosen), count in counts.items()]


def bytes_of(matrix: Matrix, stored: Format | None, plain_bytes: float) -> float:
    """Return the bytes of matrices of a name.

    plain_bytes : of a weight without a format.
    """
    if stored is None or not matrix.parameters:
        return matrix.parameters * plain_bytes
    return matrix.count * stored.stored_bytes(matrix.outputs, matrix.inputs)


class MainFormats(NamedTuple):
    """The formats of most weights, by which kernels are priced.

    None: the model's dtype.

    dense : of matrices that all tokens pass. experts : of routed experts. parts : of each part.
    """

    dense: Format | None
    experts: Format | None
    parts: dict[str, Format | None]


def main_formats(layers: tuple[Layer, ...], rows: tuple[StoredMatrices, ...], hidden: int) -> MainFormats:
    """Return the formats of most weights of a model."""
    parts: dict[str, Counter] = {}
    experts, dense = Counter(), Counter()
    for each in layer_formats(layers, rows):
        for name, matrix, stored in each.dense(hidden):
            parts.setdefault(name, Counter())[stored] += each.count * matrix.parameters
        for matrix, stored in each.experts(hidden):
            experts[stored] += each.count * matrix.parameters
    for counts in parts.values():
        dense.update(counts)
    quantized = Counter({stored: count for stored, count in dense.items() if stored is not None})
    return MainFormats(_most(quantized or dense), _most(experts), {name: _most(each) for name, each in parts.items()})


def _most(counts: Counter) -> Format | None:
    return max(counts, key=counts.get) if counts else None
