"""Rows of iterations are sorted as NumPy would sort them."""
import numpy as np
import pytest

from simulator.domain import records
from simulator.engine.output.row_order import RowOrder


def rows_of(start_ns, replica):
    rows = np.zeros(len(start_ns), records.ITERATION)
    rows["start_ns"], rows["replica"] = start_ns, replica
    rows["duration_ns"] = np.arange(len(rows))      # which row it is
    return rows


@pytest.mark.parametrize("seed", range(40))
def test_order_is_that_of_start_and_replica_and_else_as_they_came(seed):
    # Up to 40 replicas took turns, each with a stretch in order; starts are few, so that many are equal.
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, 30, generator.integers(1, 40))
    replica = np.repeat(generator.permutation(len(lengths)), lengths)
    start_ns = np.concatenate([np.sort(generator.integers(0, 50, length)) for length in lengths])
    rows = rows_of(start_ns, replica)

    found = RowOrder().in_order(rows)

    assert np.array_equal(found, rows[np.lexsort((replica, start_ns))])


@pytest.mark.parametrize(("start_ns", "expected"), [
    ([], []), ([5], [0]), ([1, 2, 3], [0, 1, 2]), ([3, 2, 1], [2, 1, 0]), ([2, 1, 2, 1, 2], [1, 3, 0, 2, 4])],
    ids=["none", "one", "in order", "backwards", "by turns"])
def test_few_rows(start_ns, expected):
    assert RowOrder().in_order(rows_of(start_ns, 0))["duration_ns"].tolist() == expected


def test_memory_is_used_again_for_more_rows_and_for_fewer():
    order, generator = RowOrder(), np.random.default_rng(1)
    for length in (10, 5000, 3):
        rows = rows_of(generator.integers(0, 2**62, length), generator.integers(0, 9, length))
        assert np.array_equal(order.in_order(rows), rows[np.lexsort((rows["replica"], rows["start_ns"]))])
