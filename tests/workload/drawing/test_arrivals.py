"""Arrival processes. Statistics use fixed seeds and bounds of many standard errors."""
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.workload.drawing.arrivals import (
    Burst,
    BurstParameters,
    Constant,
    Gamma,
    Poisson,
    Weibull,
    arrival_times_s,
    weibull_shape,
)

N = 200_000


def rng(seed=1):
    return np.random.default_rng(seed)


def process(kind, rate=10.0, cv=None):
    return kind(kind.Parameters(rate_per_s=rate) if cv is None else kind.Parameters(rate_per_s=rate, cv=cv))


def test_constant_arrivals_follow_the_first_gap():
    times = arrival_times_s(process(Constant, rate=4.0), rng(), 3)

    assert times.tolist() == [0.25, 0.5, 0.75]


def test_bursts_arrive_together_at_each_interval():
    bursts = Burst(BurstParameters(size=3, interval_s=2.0))

    assert arrival_times_s(bursts, rng(), 7).tolist() == [2, 2, 2, 4, 4, 4, 6]


def test_bursts_continue_over_blocks():
    bursts = Burst(BurstParameters(size=70, interval_s=1.0))

    # drawn in blocks of 100 and more; 4.5 s hold four bursts
    times = arrival_times_s(bursts, rng(), None, 4.5)

    assert times.tolist() == np.repeat([1.0, 2.0, 3.0, 4.0], 70).tolist()


def test_no_request_arrives_at_the_end_or_after_it():
    assert arrival_times_s(process(Constant, rate=4.0), rng(), None, 1.0).tolist() == [0.25, 0.5, 0.75]


def test_the_smaller_limit_holds():
    assert len(arrival_times_s(process(Constant, rate=4.0), rng(), 2, 1.0)) == 2
    assert len(arrival_times_s(process(Constant, rate=4.0), rng(), 9, 1.0)) == 3


def test_an_infinite_rate_puts_all_at_time_zero():
    for kind, cv in ((Constant, None), (Poisson, None), (Gamma, 2.0), (Weibull, 2.0)):
        assert arrival_times_s(process(kind, math.inf, cv), rng(), 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("kind", "cv"), [
    (Poisson, None), (Gamma, 0.5), (Gamma, 1.0), (Gamma, 3.0), (Weibull, 0.5), (Weibull, 1.0), (Weibull, 3.0)])
def test_gaps_have_the_mean_and_variation_asked_for(kind, cv):
    gaps = process(kind, 10.0, cv).gaps_s(rng(), 0, N)

    # standard error of the mean: cv / sqrt(N), 0.7 % at cv 3; the variation of heavy tails converges slower
    assert gaps.mean() == pytest.approx(0.1, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(cv or 1.0, rel=0.1)
    assert (gaps >= 0).all()


def test_poisson_gaps_are_exponential():
    gaps = process(Poisson, 10.0).gaps_s(rng(), 0, N)

    for quantile in (0.1, 0.5, 0.9, 0.99):      # P(gap < t) = 1 - exp(-10 t)
        assert np.mean(gaps < -math.log(1 - quantile) / 10) == pytest.approx(quantile, abs=0.006)


def test_weibull_of_variation_one_is_exponential():
    assert weibull_shape(1.0) == pytest.approx(1.0, abs=1e-12)


def test_weibull_of_shape_two_is_rayleigh():
    # variance / mean**2 = (1 - pi/4) / (pi/4)
    assert weibull_shape(math.sqrt(4 / math.pi - 1)) == pytest.approx(2.0, abs=1e-12)


@given(st.floats(0.001, 100))
def test_the_weibull_shape_gives_back_its_variation(cv):
    k = weibull_shape(cv)

    squared = math.expm1(math.lgamma(1 + 2 / k) - 2 * math.lgamma(1 + 1 / k))
    assert math.sqrt(squared) == pytest.approx(cv, rel=1e-4)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.floats(0.1, 100), st.floats(0.1, 50))
def test_duration_cuts_the_same_arrivals_that_a_number_gives(seed, rate, duration_s):
    cut = arrival_times_s(process(Poisson, rate), rng(seed), None, duration_s)
    all_of_them = arrival_times_s(process(Poisson, rate), rng(seed), len(cut) + 1)

    assert cut.tolist() == all_of_them[:-1].tolist()
    assert all_of_them[-1] >= duration_s
    assert (np.diff(all_of_them) >= 0).all()
