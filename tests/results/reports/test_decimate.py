"""So many points that a picture needs: no peak is lost."""
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.results.figures.decimate import quantiles, scattered


def test_few_points_stay_as_they_are():
    x, y = np.arange(4.0), np.array([3.0, 1.0, 2.0, 0.0])

    assert [each.tolist() for each in scattered(x, y, 2)] == [x.tolist(), y.tolist()]


def test_of_each_column_the_least_and_the_greatest_are_kept():
    # two columns: 0 <= x < 3.5 with 5, 1, 9, 2 and 3.5 <= x <= 7 with 4, 4, 8, 0
    x, y = np.arange(8.0), np.array([5.0, 1, 9, 2, 4, 4, 8, 0])

    assert [each.tolist() for each in scattered(x, y, 2)] == [[1.75, 1.75, 5.25, 5.25], [1, 9, 0, 8]]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), st.integers(1, 20))
def test_extremes_survive_and_points_are_few(values, num_columns):
    y = np.array(values)
    _, kept = scattered(np.arange(len(y), dtype=float), y, num_columns)

    assert len(kept) <= max(2 * num_columns, 1)
    assert (kept.min(), kept.max()) == (y.min(), y.max())


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_quantiles_are_those_of_numpy(values):
    found, shares = quantiles(np.array(values))

    assert np.allclose(np.interp([0.5, 0.9, 0.99], shares, found), np.percentile(values, [50, 90, 99]))


def test_many_samples_give_1001_points():
    samples = np.random.default_rng(1).exponential(size=5000)

    found, shares = quantiles(samples)

    assert len(found) == len(shares) == 1001
    assert np.allclose(found[[500, 900, 990]], np.percentile(samples, [50, 90, 99]))
