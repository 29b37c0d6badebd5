"""Base of the parts of a decoder layer: token mixers and feed-forward networks.

`hidden` is the width of the model. A part that one tensor-parallel rank holds is `part.shard(ranks)`; all other answers
are those of the part as it is, whole or a share.
"""
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, NamedTuple

import msgspec
from msgspec import Meta

MOST = 2**40                                    # bound of every count: far above any model, far below overflow
MAX_LAYERS = 10_000
Positive = Annotated[int, Meta(ge=1, le=MOST)]
Count = Annotated[int, Meta(ge=0, le=MOST)]
StateDtype = Literal["float32", "bfloat16", "float16"]      # formats of the states of linear attention
STATE_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}


class Product(NamedTuple):
    """A matrix product (T, k) x (k, n)."""

    name: str
    n: float
    k: float
    is_quantized: bool = True


class Matrix(NamedTuple):
    """Linear projections of one name, which a checkpoint may quantise.

    name : of their class: q, k, v, o, gate, up, down, ..., with a prefix where a part has several.
    count : equal ones, as of experts.
    """

    name: str
    outputs: int
    inputs: int
    count: float = 1

    parameters = property(lambda self: self.outputs * self.inputs * self.count)


class Small(NamedTuple):
    """Equal kernels between products that only move memory."""

    name: str
    elements: float             # that a token moves in all kernels
    kernels: int = 1


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all parts: strict about unknown keys.

    A kind defines `matrices(hidden)`, its linear projections, which quantisation shrinks; `num_parameters(hidden)`,
    with biases, norms and other small tensors; `products(hidden)` and `small_operators` between them;
    `between_kernels`, which only move memory, with the norms before the part; `inner_elements(hidden)` of a token,
    alive at once inside; and `moved_elements(hidden)` of a token between products.
    """

    is_around: ClassVar[bool] = False           # it surrounds the parts of a layer, as a residual does
    has_experts: ClassVar[bool] = False         # a network that routes each token to some of its experts
    backend: ClassVar[str] = ""                 # family of kernels that engines choose; networks have none
    quantizes_output: ClassVar[bool] = False    # a kernel of its own quantises the inputs of its last product
    price_key = property(lambda self: self.__struct_config__.tag)      # under which tables may have its kind; or None

    def matrix_parameters(self, hidden: int) -> int:
        """Count the weights of the linear projections."""
        return sum(matrix.parameters for matrix in self.matrices(hidden))

    def split_widths(self) -> Iterator[tuple[str, int]]:
        """Yield name and width of dimensions that blocks of weights must fit."""
        yield from ()


def divide(count: int, ways: int, what: str) -> int:
    """Return `count / ways`; `what` names the count when it does not divide."""
    if count % ways:
        raise ValueError(f"{what} = {count} is not divisible by tensor_parallel = {ways}")
    return count // ways
