"""Gamma distributed numbers of single requests."""
import numpy as np
import pytest

from simulator.workload.own_draws import log_gammas


@pytest.mark.parametrize("shape", [0.02, 0.4, 1.0, 3.7, 80.0])
def test_gammas_have_their_mean_and_variance(shape):
    count = 200_000
    drawn = np.exp(log_gammas(3, "test", np.arange(count, dtype=np.uint64), shape))
    assert abs(drawn.mean() - shape) < 5 * np.sqrt(shape / count)       # variance = shape
    # the fourth central moment is 3 k (k + 2); the variance of the variance is what it has over the square of that
    assert abs(drawn.var() - shape) < 5 * np.sqrt((3 * shape * (shape + 2) - shape**2) / count)
