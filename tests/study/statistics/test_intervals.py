"""Intervals hold what they promise."""
import math

import numpy as np
import pytest

from simulator.study.statistics.intervals import Estimate, of_pairs, of_replications, of_share
from simulator.study.statistics.student import beta_inc, t_quantile

stats = pytest.importorskip("scipy.stats", reason="SciPy comes with the extra `test`")


def of_difference(values, others, confidence: float = 0.95) -> Estimate:
    """Return the difference of two means with unrelated replications.

    Source: Welch, The generalization of "Student's" problem when several different population variances are involved,
    Biometrika 34, 1947.
    """
    samples = [np.asarray(each, dtype=float) for each in (values, others)]
    difference = float(samples[0].mean() - samples[1].mean())
    if min(map(len, samples)) < 2:
        return Estimate(difference, math.nan)
    parts = [float(each.var(ddof=1)) / len(each) for each in samples]
    total = sum(parts)
    if total == 0:
        return Estimate(difference, 0.0)
    degrees = total**2 / sum(part**2 / (len(each) - 1) for part, each in zip(parts, samples, strict=True))
    return Estimate(difference, t_quantile(0.5 + confidence / 2, degrees) * math.sqrt(total))


def test_quantile_of_nine_degrees():
    assert t_quantile(0.975, 9) == pytest.approx(2.262157, abs=5e-7)


@pytest.mark.parametrize("degrees", [1, 2, 3.7, 9, 19, 120, 5000])
@pytest.mark.parametrize("probability", [0.6, 0.9, 0.975, 0.9995, 0.025, 0.5])
def test_quantiles_are_those_of_scipy(degrees, probability):
    assert t_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("a", "b", "x"), [(0.5, 0.5, 0.3), (5, 2, 0.9), (984, 17, 0.98), (1e5, 1e3, 0.99),
                                       (2, 3, 0), (2, 3, 1)])
def test_incomplete_beta_is_that_of_scipy(a, b, x):
    assert beta_inc(a, b, x) == pytest.approx(stats.beta.cdf(x, a, b), rel=1e-9, abs=1e-12)


def test_ten_replications():
    # Mean 10, s = sqrt(20 / 9) = 1.490712, half-width 2.262157 x 1.490712 / sqrt(10).
    estimate = of_replications([10, 12, 9, 11, 8, 10, 12, 8, 11, 9])
    assert estimate.mean == 10
    assert estimate.half_width == pytest.approx(1.066391, abs=5e-7)
    assert (estimate.low, estimate.high) == (10 - estimate.half_width, 10 + estimate.half_width)


def test_pairs_decide_where_two_samples_do_not():
    ours, others = (101, 95, 110, 99, 104), (97, 92, 104, 96, 99)
    paired, apart = of_pairs(ours, others), of_difference(ours, others)
    assert paired.mean == pytest.approx(4.2) and paired.half_width == pytest.approx(1.618932, abs=5e-7)
    assert apart.mean == pytest.approx(4.2) and apart.half_width == pytest.approx(7.441262, abs=5e-7)
    assert paired.low > 0 > apart.low


def test_one_value_has_no_interval_and_equal_ones_have_none_to_speak_of():
    assert math.isnan(of_replications([3.0]).half_width) and of_replications([3.0]).mean == 3
    assert of_replications([0.1, 0.1, 0.1]) == (0.1, 0.0)
    assert math.isnan(of_replications([]).mean)
    assert math.isnan(of_difference([1.0], [2.0, 3.0]).half_width)
    assert of_difference([2.0, 2.0], [1.0, 1.0]) == (1.0, 0.0)


def test_interval_of_a_share():
    assert of_share(985, 1000) == pytest.approx((0.975399, 0.990889), abs=5e-7)
    assert of_share(0, 0) == (0.0, 1.0)
    low, high = of_share(50, 50)
    assert 0.92 < low < 1 and high == pytest.approx(1)


def test_intervals_cover_as_often_as_they_say():
    # 2,000 samples of 6 normal values: 95 % of the intervals hold the mean, within 3 standard errors (1.5 %).
    samples = np.random.default_rng(7).normal(10, 3, (2000, 6))
    covers = [abs(estimate.mean - 10) <= estimate.half_width for estimate in map(of_replications, samples)]
    assert np.mean(covers) == pytest.approx(0.95, abs=0.015)
