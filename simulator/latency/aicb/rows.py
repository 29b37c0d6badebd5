"""Per-layer tables summed, interpolated and priced: the rows in which `aicb` looks up iterations.

Layers are summed first: interpolation is linear, so the sum of interpolated layers is the interpolated sum.
"""
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from simulator.latency.aicb.tables import COMPONENTS, Table

# Columns of a node, in the order of `part` in model.pyx; `others` is the sum of the later columns.
PARTS = ("total", "attention", "others", "mlp", "moe", "expert_exchange", "all_reduce")
# Sums of a slice before they are priced
ATTENTION_NS, MLP_NS, MOE_NS, EXCHANGE_BYTES, EXCHANGES, REDUCE_BYTES, REDUCES = range(7)


class Rules(NamedTuple):
    """Prices that turn sums into times.

    exchange_ns, reduce_ns : price of one expert exchange and of one all-reduce by its bytes.
    absent_ns : time of each component that a layer lacks.
    """

    exchange_ns: Callable[[float], float]
    reduce_ns: Callable[[float], float]
    absent_ns: float = 0.0


class Row(NamedTuple):
    """Times of one batch size, by length.

    lengths : ascending; times are linear between two lengths.
    low, high : range of lengths covered by all tables of the row; low > high: none.
    parts_ns : array (lengths, slices, PARTS).
    """

    lengths: np.ndarray
    parts_ns: np.ndarray
    low: float
    high: float
    is_tabulated: bool          # there are tables of exactly this batch size


class _Curve(NamedTuple):
    """The tables of one batch size."""

    lengths: np.ndarray
    sums: np.ndarray            # (lengths, slices, 7)

    def at(self, lengths: np.ndarray) -> np.ndarray:
        """Return the sums at each length, interpolated, or from the nearest table."""
        if len(self.lengths) == 1:
            return np.broadcast_to(self.sums[0], (len(lengths), *self.sums.shape[1:]))
        left = np.clip(np.searchsorted(self.lengths, lengths, "right") - 1, 0, len(self.lengths) - 2)
        width = self.lengths[left + 1] - self.lengths[left]
        share = np.clip((lengths - self.lengths[left]) / width, 0.0, 1.0)[:, None, None]
        return (1 - share) * self.sums[left] + share * self.sums[left + 1]


def decode_rows(tables: list[Table], slices: list[range], rules: Rules) -> list[Row]:
    """Return the rows of 1, 2, ... sequences, up to the largest batch of the tables.

    Parameters
    ----------
    tables : list of Table
    slices : layers to sum up together: the layers of each pipeline stage.
    rules : Rules
    """
    by_size = {size: _curve([table for table in tables if table.batch_size == size], slices, rules.absent_ns)
               for size in {table.batch_size for table in tables}}
    return [_row(by_size, size, rules) for size in range(1, max(by_size) + 1)]


def prefill_row(tables: list[Table], slices: list[range], rules: Rules) -> Row:
    """Return the row of one prompt, by its tokens.

    Of tables of one length the one with the smallest batch size is used: they should not differ.
    """
    by_length = {table.sequence_length: table for table in sorted(tables, key=lambda table: -table.batch_size)}
    return _row({1: _curve(list(by_length.values()), slices, rules.absent_ns)}, 1, rules)


def _curve(tables: list[Table], slices: list[range], absent_ns: float) -> _Curve:
    tables = sorted(tables, key=lambda table: table.sequence_length)
    return _Curve(np.array([float(table.sequence_length) for table in tables]),
                  np.array([[_sums(table, layers, absent_ns) for layers in slices] for table in tables]))


def _sums(table: Table, layers: range, absent_ns: float) -> list[float]:
    part = slice(layers.start, layers.stop)
    compute_ns = np.nan_to_num(table.compute_ns[part], nan=absent_ns)
    comm_bytes = np.nan_to_num(table.comm_bytes[part], nan=0.0)
    exchanges, reduces = comm_bytes[:, COMPONENTS.index("moe")], comm_bytes[:, :COMPONENTS.index("moe")]
    return [*map(math.fsum, compute_ns.T), exchanges.sum(), np.count_nonzero(exchanges),
            reduces.sum(), np.count_nonzero(reduces)]


def _row(by_size: dict[int, _Curve], size: int, rules: Rules) -> Row:
    sizes = sorted(by_size)
    below = max((each for each in sizes if each <= size), default=sizes[0])
    above = min(each for each in sizes if each >= size)
    share = (size - below) / (above - below) if above > below else 0.0
    lower, upper = by_size[below], by_size[above]
    lengths = np.union1d(lower.lengths, upper.lengths)
    sums = (1 - share) * lower.at(lengths) + share * upper.at(lengths)
    covered = size >= sizes[0]
    return Row(
        lengths=lengths,
        parts_ns=np.array([[_parts(each, rules) for each in node] for node in sums]),
        low=max(lower.lengths[0], upper.lengths[0]) if covered else math.inf,
        high=min(lower.lengths[-1], upper.lengths[-1]),
        is_tabulated=size in by_size)


def _parts(sums: np.ndarray, rules: Rules) -> list[float]:
    """Return the times of one slice at one node, in the order of PARTS.

    Messages of one slice are taken to be of equal size, as in AICB.
    """
    exchange_ns = sums[EXCHANGES] and sums[EXCHANGES] * rules.exchange_ns(sums[EXCHANGE_BYTES] / sums[EXCHANGES])
    reduce_ns = sums[REDUCES] and sums[REDUCES] * rules.reduce_ns(sums[REDUCE_BYTES] / sums[REDUCES])
    attention_ns, others = sums[ATTENTION_NS], [sums[MLP_NS], sums[MOE_NS], exchange_ns, reduce_ns]
    return [attention_ns + math.fsum(others), attention_ns, math.fsum(others), *others]
