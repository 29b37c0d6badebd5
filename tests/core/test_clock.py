import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.core import clock


@pytest.mark.parametrize(("seconds", "ns"), [
    (0.0, 0),
    (1.5, 1_500_000_000),
    (0.1, 100_000_000),             # 0.1 * 1e9 is 100000000.00000001 before rounding at worst
    (2.0**-30, 1),                  # 0.93 ns
    (4e-10, 0),
    (-1.5, -1_500_000_000),
    (9.3e9, clock.NEVER_NS),        # 295 years: beyond int64 nanoseconds
    (math.inf, clock.NEVER_NS),
])
def test_seconds_become_the_nearest_nanosecond(seconds, ns):
    assert clock.ns_from_s(seconds) == ns


@pytest.mark.parametrize(("us", "ns"), [(0.0005, 1), (-0.0005, -1), (0.00049999999999999994, 0), (1.25, 1250)])
def test_half_a_nanosecond_goes_away_from_zero(us, ns):
    assert clock.ns_from_us(us) == ns


def test_milliseconds_become_nanoseconds():
    assert clock.ns_from_ms(0.25) == 250_000


def test_nanoseconds_become_the_units_of_the_borders():
    assert (clock.s_from_ns(1_500_000_000), clock.ms_from_ns(1_500_000), clock.us_from_ns(1_500)) == (1.5, 1.5, 1.5)


def test_an_instant_that_never_comes_is_later_than_all_others():
    assert clock.NEVER_NS == 2**63 - 1


@given(st.floats(min_value=-1e9, max_value=1e9))
def test_the_error_of_a_conversion_is_at_most_half_a_nanosecond_after_the_product(seconds):
    assert abs(Fraction(clock.ns_from_s(seconds)) - Fraction(seconds * 1e9)) <= Fraction(1, 2)


@given(st.integers(min_value=0, max_value=2**53 // 10))
def test_a_time_survives_the_way_to_seconds_and_back(ns):
    # Up to 2**53 / 10 ns, ten days, seconds as a double are exact to a fraction of a nanosecond.
    assert clock.ns_from_s(clock.s_from_ns(ns)) == ns
