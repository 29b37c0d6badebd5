import math

import numpy as np
import pytest

from simulator.core.quantile_sketch import RELATIVE_ERROR, QuantileSketch
from simulator.core.weighted_samples import WeightedSamples


def sketch_of(*blocks):
    sketch = QuantileSketch()
    for values in blocks:
        sketch.observe(np.array(values, np.int64))
    return sketch


@pytest.mark.parametrize("spread", [1, 9, 30, 60])
def test_ranks_are_within_the_stated_error(spread):
    values = np.sort((2.0 ** np.random.default_rng(spread).uniform(0, spread, 5000)).astype(np.int64))
    ranks = range(len(values))
    found = np.array(sketch_of(values).at_ranks(ranks))
    assert (abs(found - values) <= RELATIVE_ERROR * values).all()
    assert (np.diff(found) >= 0).all()


def test_small_integers_and_edges_of_buckets():
    edges = [0, 1, 1022, 1023, 1024, 1025, 1026, 2**40 - 1, 2**40, 2**62]
    found = sketch_of(edges).at_ranks(range(len(edges)))
    assert found[:4] == edges[:4]
    assert all(abs(one - other) <= RELATIVE_ERROR * other for one, other in zip(found, edges, strict=True))
    assert (found[0], found[-1]) == sketch_of(edges).extremes()


def test_sums_are_exact_however_large():
    values = [2**50 + 1, 2**50 + 3] * 1000
    assert sketch_of(values).mean_and_deviation() == (float(2**50 + 2), 1.0)


def test_nothing_observed():
    assert sketch_of().mean_and_deviation() == (None, None)
    with pytest.raises(IndexError, match="rank 0 of 0"):
        sketch_of().at_ranks([0])


def test_neither_order_nor_grouping_shows():
    values = np.random.default_rng(1).integers(0, 2**46, 999)
    samples = WeightedSamples()
    for value in values[:500].tolist():
        samples.observe(value, 3)
    both = sketch_of(values[500:].repeat(3)[::-1])
    both.observe(*samples.drain())
    whole = sketch_of(values.repeat(3))
    assert samples.total_weight() == 0
    assert both.at_ranks(range(2997)) == whole.at_ranks(range(2997))
    mean, deviation = both.mean_and_deviation()
    assert (mean, deviation) == whole.mean_and_deviation()
    assert math.isclose(deviation, values.std(), rel_tol=1e-12)
