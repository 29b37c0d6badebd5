"""Selection of a pool by the shape of a request, before a router chooses a replica of it: [cluster.pool_selection].

Source: ai-dynamo 1.6.1 (PyPI), dynamo/global_router, the rules restated. A range is cut into n equal cells; x is in
cell int((x - min) / ((max - min) / n)), at least the first one and at most the last.
"""
from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

Cells = Annotated[int, Meta(ge=1, le=1024, extra={"unit": "cells"})]


class Tokens(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Range of lengths of prompts, cut into cells."""

    min_tokens: Annotated[Annotated[int, Meta(ge=0, le=2**31 - 1)], Meta(description="begin of the first cell")] = 0
    max_tokens: Annotated[Annotated[int, Meta(ge=1, le=2**31 - 1)], Meta(description="end of the last cell")]
    cells: Annotated[Cells, Meta(description="equal cells")]

    def __post_init__(self):
        _check_range(self.min_tokens, self.max_tokens, "tokens")


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Range of bounds on a latency, cut into cells.

    A request without a bound counts as in the middle of the range.
    """

    min_ms: Annotated[float, Meta(ge=0, le=1e9, description="begin of the first cell")] = 0.0
    max_ms: Annotated[float, Meta(gt=0, le=1e9, description="end of the last cell")]
    cells: Annotated[Cells, Meta(description="equal cells")]

    def __post_init__(self):
        _check_range(self.min_ms, self.max_ms, "ms")


class Override(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Range of priorities with a pool of their own."""

    min_priority: Annotated[Annotated[int, Meta(ge=-2**31, le=2**31 - 1)], Meta(description="lowest priority")]
    max_priority: Annotated[Annotated[int, Meta(ge=-2**31, le=2**31 - 1)], Meta(description="highest priority")]
    pool: Annotated[str, Meta(min_length=1, description="name of the pool")]

    def __post_init__(self):
        if self.max_priority < self.min_priority:
            raise ValueError(
                f"max_priority: expected at least min_priority = {self.min_priority}, found {self.max_priority}")


class PoolSelection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pools by the shape of requests, [cluster.pool_selection].

    The rules are those of Dynamo's global router.
    """

    isl: Annotated[Tokens | None, Meta(description="lengths of prompts, the rows of table; absent: one row")] = None
    ttft_ms: Annotated[Bounds | None, Meta(description=(
        "bounds on the time to first token, of [slo] and its classes, the columns of table; absent: one "
        "column"))] = None
    itl_ms: Annotated[Bounds | None, Meta(description=(
        "bounds on the time between tokens, tpot_ms of [slo] and its classes: columns within each column of "
        "ttft_ms"))] = None
    table: Annotated[Annotated[tuple[Annotated[tuple[str, ...], Meta(min_length=1)], ...], Meta(min_length=1)], Meta(
        description="names of pools: rows by isl, columns by ttft_ms, within these by itl_ms")]
    overrides: Annotated[tuple[Override, ...], Meta(description=(
        "pools of requests by their priority, whatever their shape; the first range that holds it"))] = ()
    too_long: Annotated[tuple[str, ...], Meta(description=(
        "names of pools, fastest first: a request that is longer than max_model_len of its pool goes to the slowest "
        "faster pool that can take it, in this order; empty: it is rejected"))] = ()
    retry: Annotated[tuple[str, ...], Meta(description=(
        "names of pools, fastest first: a request that its pool rejects, or that was lost with its replica, is sent to "
        "the faster pools among them, slowest first; empty: it is not"))] = ()

    def __post_init__(self):
        rows, columns = _cells(self.isl), _cells(self.ttft_ms) * _cells(self.itl_ms)
        if len(self.table) != rows or any(len(row) != columns for row in self.table):
            raise ValueError(f"table: expected {rows} rows of {columns} names, by the cells of isl, ttft_ms and itl_ms")

    @property
    def names(self) -> list[str]:
        """Names of all pools that it may select, in the order in which they appear."""
        return list(dict.fromkeys([*(name for row in self.table for name in row),
                                   *(each.pool for each in self.overrides), *self.too_long, *self.retry]))

    @property
    def retries(self) -> dict[str, list[str]]:
        """Pools that are tried after each pool of `retry`, in order."""
        return {name: [self.retry[i] for i in retry_order(range(len(self.retry)), first)[1:]]
                for first, name in enumerate(self.retry)}

    def overlaps(self) -> list[str]:
        """Return a sentence for each override with priorities that one before it holds."""
        return [f"cluster.pool_selection.overrides[{i}]: priorities {max(each.min_priority, other.min_priority)} to "
                f"{min(each.max_priority, other.max_priority)} are in overrides[{j}], too, which comes first"
                for i, each in enumerate(self.overrides) for j, other in enumerate(self.overrides[:i])
                if max(each.min_priority, other.min_priority) <= min(each.max_priority, other.max_priority)]

    def select(self, isl: np.ndarray, ttft_ms: np.ndarray, itl_ms: np.ndarray, priority: np.ndarray) -> np.ndarray:
        """Return the index in `names` of the pool of each request.

        isl, ttft_ms, itl_ms : float64 (n,), NaN where a request has no bound.
        priority : float64 (n,), of each request; NaN: no override holds it.
        """
        names = self.names
        pools = np.array([[names.index(name) for name in row] for row in self.table])
        column = (_cell(ttft_ms, self.ttft_ms, "ms") * _cells(self.itl_ms) + _cell(itl_ms, self.itl_ms, "ms"))
        chosen = pools[_cell(isl, self.isl, "tokens"), column]
        for each in reversed(self.overrides):
            chosen[(priority >= each.min_priority) & (priority <= each.max_priority)] = names.index(each.pool)
        return chosen

    def moved(self, chosen: np.ndarray, tokens: np.ndarray, limits: Sequence[float]) -> np.ndarray:
        """Return the pools of requests after the move of requests that are too long.

        chosen : index in `names` of each request. tokens : of its whole text. limits : longest text of each pool.
        """
        names, limits, chosen = self.names, np.asarray(limits, float), chosen.copy()
        ranks = np.array([self.too_long.index(name) if name in self.too_long else -1 for name in names])
        for row in np.flatnonzero((tokens > limits[chosen]) & (ranks[chosen] >= 0)):
            order = retry_order(ranks, chosen[row])
            chosen[row] = next((pool for pool in order if tokens[row] <= limits[pool]), chosen[row])
        return chosen


def retry_order(ranks: Sequence[int], first: int) -> list[int]:
    """Return a pool, then the faster ones, slowest first, equals by index.

    ranks : of the pools, lower ones are faster; below 0: a pool that takes no part.
    """
    faster = [i for i, rank in enumerate(ranks) if 0 <= rank < ranks[first]]
    return [int(first), *sorted(faster, key=lambda i: (-ranks[i], i))]


def _cells(axis) -> int:
    return 1 if axis is None else axis.cells


def _cell(values, axis, unit):
    if axis is None:
        return np.zeros(len(values), np.int64)
    low, high = getattr(axis, f"min_{unit}"), getattr(axis, f"max_{unit}")
    values = np.where(np.isnan(values), (low + high) / 2, values)
    return np.clip(np.trunc((values - low) / ((high - low) / axis.cells)), 0, axis.cells - 1).astype(np.int64)


def _check_range(low, high, unit):
    if high <= low:
        raise ValueError(f"max_{unit}: expected more than min_{unit} = {low:g}, found {high:g}")
