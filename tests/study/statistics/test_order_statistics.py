"""A percentile needs numbers."""
import numpy as np
import pytest

from simulator.study.statistics.order_statistics import is_thin, least_observations, ranks_of

stats = pytest.importorskip("scipy.stats", reason="SciPy comes with the extra `test`")


def test_interval_of_p99_takes_368_observations():
    assert least_observations(0.99) == 368 and 0.99**368 <= 0.025 < 0.99**367
    assert ranks_of(0.99, 367) is None and ranks_of(0.99, 368) is not None


def test_ranks_of_p99_of_a_thousand():
    low, high, coverage = ranks_of(0.99, 1000)
    assert (low, high) == (983, 996) and coverage == pytest.approx(0.957, abs=5e-4)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("count", [368, 1000, 5000, 100_000])
def test_coverage_is_that_of_the_binomial(share, count):
    found = ranks_of(share, count)
    if found is None:
        assert share**count > 0.025
        return
    low, high, coverage = found
    assert coverage >= 0.95
    assert coverage == pytest.approx(stats.binom.cdf(high - 1, count, share) - stats.binom.cdf(low - 1, count, share))


def test_interval_holds_the_percentile_of_any_distribution():
    # 1,000 samples of 1,000 exponential values: 95.7 % of the intervals hold p99 = ln 100, within 3 standard errors.
    samples = np.sort(np.random.default_rng(11).exponential(1, (1000, 1000)))
    low, high, coverage = ranks_of(0.99, 1000)
    covers = (samples[:, low - 1] <= np.log(100)) & (np.log(100) <= samples[:, high - 1])
    assert covers.mean() == pytest.approx(coverage, abs=0.02)


def test_thin_percentiles():
    assert not is_thin(0.99, 5000) and is_thin(0.99, 4999)
    assert not is_thin(0.5, 100) and is_thin(0.999, 49_000)
    assert not is_thin(0.99, 1, min_tail=0)
