"""Lengths from given counts: a distribution of token counts, as in lengths.py."""
from typing import Annotated

import numpy as np
from msgspec import Meta

from simulator.workload.drawing.lengths import Bounds, Length, Tokens, weighted_ranks
from simulator.workload.reading.files import read_bytes
from simulator.workload.reading.tables import read_integer_column


class EmpiricalParameters(Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lengths drawn with replacement from `values`, or from a column of a CSV file."""

    min: Annotated[Tokens, Meta(description="shorter draws become this")] = 0
    values: Annotated[tuple[Tokens, ...], Meta(description="the lengths; or give path and column")] = ()
    weights: Annotated[tuple[Annotated[float, Meta(ge=0)], ...], Meta(
        description="probability of each value, in any unit; default: equally likely")] = ()
    path: Annotated[str, Meta(description="CSV file, plain or .gz", extra={"path": True})] = ""
    column: Annotated[str, Meta(description="the file's column of lengths")] = ""

    def __post_init__(self):
        super().__post_init__()
        if bool(self.values) == bool(self.path):
            raise ValueError("give either values, or path and column")
        if self.values and self.column:
            raise ValueError("column: belongs to path; values are given")
        if self.path and not self.column:
            raise ValueError(f'which column of "{self.path}" holds the lengths? give column')
        if self.weights and len(self.weights) != len(self.values):
            raise ValueError(f"{len(self.weights)} weights for {len(self.values)} values")
        if self.weights and not 0 < sum(self.weights) < float("inf"):
            raise ValueError("the weights must have a positive, finite sum")


class Empirical(Length):
    """`empirical`."""

    Parameters = EmpiricalParameters

    def __init__(self, parameters):
        super().__init__(parameters)
        self._values = np.array(parameters.values, dtype=np.int64)
        if parameters.path:
            self._values = read_integer_column(parameters.path, read_bytes(parameters.path), parameters.column)

    def sample(self, generator, count):
        if not self.parameters.weights:
            return self._values[generator.integers(0, len(self._values), count)]
        return self._values[weighted_ranks(generator, count, self.parameters.weights)]
