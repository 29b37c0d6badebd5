"""Lambda and its inverse. Statistics use fixed seeds and bounds of many standard errors."""
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputErrors
from simulator.workload.drawing.rates import mmpp
from simulator.workload.drawing.rates.diurnal import Diurnal, DiurnalParameters
from simulator.workload.drawing.rates.mmpp import Mmpp, MmppParameters
from simulator.workload.drawing.rates.piecewise import Piecewise, PiecewiseParameters
from simulator.workload.drawing.rates.spike import Spike, SpikeParameters, Spikes


def rng(seed=1):
    return np.random.default_rng(seed)


def table(times_s, rates_per_s, interpolate="step"):
    return Piecewise(PiecewiseParameters(times_s=times_s, rates_per_s=rates_per_s, interpolate=interpolate))


def times(rate, due, seed=1):
    return rate.course(rng(seed)).times_s(np.array(due, float)).tolist()


def test_steps_are_inverted_exactly():
    # 1/s for 10 s, then 3/s
    assert times(table((0.0, 10.0), (1.0, 3.0)), [1, 10, 11, 13, 40]) == [1, 10, 10 + 1 / 3, 11, 20]


def test_arrivals_jump_over_what_is_flat_at_the_smallest_time():
    # 2/s for 1 s, nothing until 5 s, then 2/s again
    assert times(table((0.0, 1.0, 5.0), (2.0, 0.0, 2.0)), [0, 1, 2, 3, 4]) == [0, 0.5, 1.0, 5.5, 6.0]


def test_a_straight_line_is_inverted_by_its_root():
    # Lambda(t) = t^2 / 2 until 4 s, where 8 are due; 4/s from then on
    assert times(table((0.0, 4.0), (0.0, 4.0), "linear"), [2, 8, 12]) == [2.0, 4.0, 5.0]


def test_a_falling_line_is_inverted_by_the_smaller_root():
    # 4 - t until 4 s: Lambda(2) = 6, Lambda(4) = 8, and no more
    assert times(table((0.0, 4.0), (4.0, 0.0), "linear"), [6, 8, 9]) == pytest.approx([2.0, 4.0, math.inf])


def test_overlapping_spikes_multiply():
    spikes = Spikes(SpikeParameters(base_per_s=2.0, spikes=(
        Spike(at_s=10.0, duration_s=10.0, factor=5.0), Spike(at_s=15.0, duration_s=10.0, factor=0.5))))
    course = spikes.course(rng())

    # 2/s to 10 s, 10/s to 15 s, 5/s to 20 s, 1/s to 25 s, 2/s
    assert [course.requests_until(at) for at in (10, 15, 20, 25, 26)] == [20, 70, 95, 100, 102]


def test_the_day_has_its_peak_and_trough():
    diurnal = Diurnal(DiurnalParameters(mean_per_s=10.0, peak_to_trough=4.0, peak_hour=12.0))
    course = diurnal.course(rng())

    assert [course.rate_per_s(3600.0 * hour) for hour in (0, 6, 12, 18)] == pytest.approx([4, 10, 16, 10])
    assert course.requests_until(86_400.0) == pytest.approx(864_000)
    assert course.requests_until(2.5 * 86_400) == pytest.approx(2.5 * 864_000)


@settings(max_examples=50)
@given(st.floats(0.01, 100), st.floats(1, 1000), st.floats(0, 48), st.floats(0.5, 1e6),
       st.lists(st.floats(0, 1e5), min_size=1, max_size=20))
def test_the_inverse_of_a_day_is_right_to_a_nanosecond(mean, ratio, peak_hour, period_s, due):
    course = Diurnal(DiurnalParameters(
        mean_per_s=mean, peak_to_trough=ratio, peak_hour=peak_hour, period_s=period_s)).course(rng())
    due = np.sort(due)

    found = course.times_s(due)

    assert (np.diff(found) >= 0).all()
    most_per_s = 2 * mean * ratio / (ratio + 1)
    for at, number in zip(found, due, strict=True):     # a nanosecond at the highest rate, and rounding of Lambda
        assert abs(course.requests_until(at) - number) <= 2e-9 * most_per_s + 1e-11 * (number + mean * period_s)


@settings(max_examples=100)
@given(st.data())
def test_the_inverse_of_a_table_is_right_and_never_falls(data):
    spans = data.draw(st.lists(st.floats(0.1, 100), min_size=1, max_size=6))
    starts = (0.0, *np.cumsum(spans).tolist())
    rates = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 7.0]), min_size=len(starts), max_size=len(starts)))
    rates[-1] = 1.0
    course = table(starts, tuple(rates), data.draw(st.sampled_from(["step", "linear"]))).course(rng())
    due = np.linspace(0, course.requests_until(starts[-1] + 5), 50)

    found = course.times_s(due)

    assert (np.diff(found) >= 0).all()
    for at, number in zip(found, due, strict=True):
        assert course.requests_until(at) == pytest.approx(number, abs=1e-9, rel=1e-9)
        if at > 1e-6:           # the smallest such time
            assert course.requests_until(at - 1e-6) < number


@pytest.mark.ci
def test_two_states_have_the_mean_and_dispersion_of_the_formula():
    states = Mmpp(MmppParameters(rates_per_s=(2.0, 10.0), leave_per_s=(0.1, 0.3)))
    course = states.course(rng(3))

    assert states.mean_per_s == pytest.approx(4.0)
    assert states.shares.tolist() == pytest.approx([0.75, 0.25])
    # counts of a Poisson process at that rate: variance = variance of Lambda + mean; long windows of 500 s, 20,000
    windows = np.diff([course.requests_until(500.0 * k) for k in range(20_001)])
    dispersion = windows.var() / windows.mean() + 1
    # 1 + 2 * 0.1 * 0.3 * 64 / (0.16 * 1.6) = 16; the edges of a window take 1 / (0.4 * 500) of 15 away
    assert windows.mean() / 500 == pytest.approx(4.0, rel=0.01)
    assert dispersion == pytest.approx(16 - 15 / 200, rel=0.05)


def test_a_walk_starts_where_it_is_told_or_as_in_the_long_run():
    def first_rate(seed, start):
        parameters = MmppParameters(rates_per_s=(2.0, 10.0), leave_per_s=(0.1, 0.3), start=start)
        return Mmpp(parameters).course(rng(seed)).requests_until(1e-9) * 1e9

    assert first_rate(1, 0) == pytest.approx(2)
    assert first_rate(1, 1) == pytest.approx(10)
    in_first = sum(first_rate(seed, "stationary") < 5 for seed in range(1000))
    assert in_first == pytest.approx(750, abs=60)       # binomial(1000, 0.75): standard deviation 14


def test_three_states_go_where_the_matrix_says():
    states = Mmpp(MmppParameters(rates_per_s=(0.0, 6.0, 3.0), start=0, matrix_per_s=(
        (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.0, 0.0))))

    assert states.shares.tolist() == pytest.approx([1 / 3] * 3)       # a circle with equal stays
    assert states.mean_per_s == pytest.approx(3.0)
    assert states.course(rng()).requests_until(1e4) == pytest.approx(3e4, rel=0.05)


def test_a_longer_walk_begins_with_the_shorter():
    states = Mmpp(MmppParameters(rates_per_s=(2.0, 10.0), leave_per_s=(0.1, 0.3)))
    due = np.arange(1.0, 20_000)

    at_once, bit_by_bit = states.course(rng()), states.course(rng())
    for end in (10, 1000, 10_000):
        bit_by_bit.times_s(due[:end])

    assert at_once.times_s(due).tolist() == bit_by_bit.times_s(due).tolist()


def test_a_walk_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(mmpp, "MOST_STAYS", 2000)
    course = Mmpp(MmppParameters(rates_per_s=(1.0, 2.0), leave_per_s=(1000.0, 1000.0))).course(rng())

    assert course.requests_until(1.0) > 0
    with pytest.raises(InputErrors, match=r"workload\.rate: the state changes more than 2000 times"):
        course.requests_until(100.0)


@pytest.mark.parametrize(("kind", "keys", "message"), [
    (PiecewiseParameters, {"times_s": (0.0, 5.0, 5.0), "rates_per_s": (1.0,) * 3}, "found 5 after 5"),
    (PiecewiseParameters, {"times_s": (1.0,), "rates_per_s": (1.0,)}, "the first has to be 0, not 1"),
    (PiecewiseParameters, {"times_s": (0.0,), "rates_per_s": (1.0, 2.0)}, "2 rates_per_s for 1 times_s"),
    (PiecewiseParameters, {"times_s": (0.0,), "rates_per_s": (0.0,)}, "all are 0"),
    (MmppParameters, {"rates_per_s": (1.0, 2.0)}, "give either leave_per_s or matrix_per_s"),
    (MmppParameters, {"rates_per_s": (1.0, 2.0, 3.0), "leave_per_s": (1.0, 2.0)}, "takes two states"),
    (MmppParameters, {"rates_per_s": (1.0, 2.0), "matrix_per_s": ((0.0, 1.0),)}, "2 rows of 2, are needed"),
    (MmppParameters, {"rates_per_s": (1.0, 2.0), "matrix_per_s": ((0.0, 1.0), (0.0, 0.0))}, "never reached"),
    (MmppParameters, {"rates_per_s": (1.0, 2.0), "matrix_per_s": ((1.0, 1.0), (1.0, 0.0))}, "the diagonal has to be 0"),
    (MmppParameters, {"rates_per_s": (0.0, 0.0), "leave_per_s": (1.0, 1.0)}, "all are 0"),
    (MmppParameters, {"rates_per_s": (1.0, 2.0), "leave_per_s": (1.0, 1.0), "start": 2}, "no state 2, only those"),
])
def test_what_is_no_rate_is_refused(kind, keys, message):
    with pytest.raises(ValueError, match=message):
        kind(**keys)
