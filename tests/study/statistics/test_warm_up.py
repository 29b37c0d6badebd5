"""What a run begins with is cut, and no more."""
import math

import numpy as np
import pytest

from simulator.study.statistics.warm_up import batch_means, mser_5, of_batches


def test_ten_zeros_are_cut():
    # Batch means 0, 0, ten times 10; see the next test for the criterion.
    values = [0] * 10 + [10, 12, 8, 10, 10] * 8
    assert mser_5(values) == (10, True)
    assert np.mean(values) == 8.0 and np.mean(values[10:]) == 10.0


def test_criterion_is_that_of_the_definition():
    rng = np.random.default_rng(3)
    for _ in range(50):
        values = rng.normal(5, 1, rng.integers(10, 200)) + 4 * np.exp(-np.arange(200) / 20)[:1]
        k = len(values) // 5
        means = values[:5 * k].reshape(k, 5).mean(axis=1)
        errors = [((means[d:] - means[d:].mean())**2).sum() / (k - d)**2 for d in range(k // 2 + 1)]
        best = int(np.argmin(errors))
        assert mser_5(values) == (5 * best, best < k // 2)


@pytest.mark.parametrize(("d", "error"), [(0, 1.6), (1, 1.09739), (2, 0.0)])
def test_worked_criterion(d, error):
    means = np.array([0, 0] + [10] * 8, dtype=float)
    assert ((means[d:] - means[d:].mean())**2).sum() / (10 - d)**2 == pytest.approx(error, abs=5e-6)


def test_run_that_never_settles_is_told():
    num_cut, is_found = mser_5(np.arange(200.0))
    assert not is_found and num_cut == 100


def test_too_few_observations_tell_nothing():
    assert mser_5([1.0] * 9) == (0, False)
    assert math.isnan(batch_means(np.ones(19)).half_width)
    assert math.isnan(batch_means(np.empty(0)).mean)


def test_batches_of_equal_size_and_their_interval():
    # t(0.975, 9) = 2.262157 of ten batch means, s 1.490712.
    found = of_batches(np.array([10, 12, 9, 11, 8, 10, 12, 8, 11, 9], dtype=float))
    assert (found.mean, found.half_width) == (10, pytest.approx(1.066391, abs=5e-7))
    # Deviations 0 2 -1 1 -2 0 2 -2 1 -1: products of neighbours 0 -2 -1 -2 0 0 -4 -2 -1 = -12, of 20.
    assert found.lag_1 == pytest.approx(-0.6) and not found.is_correlated


def test_what_is_over_is_left_out_at_the_beginning():
    assert batch_means(np.array([99.0] + [1.0] * 40)).mean == 1


def test_correlated_batches_are_told():
    slow = np.cumsum(np.random.default_rng(5).normal(0, 1, 4000))
    assert batch_means(slow).is_correlated
    assert not batch_means(np.random.default_rng(5).normal(0, 1, 4000)).is_correlated
