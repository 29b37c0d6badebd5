"""Members that join and leave."""
import math

import numpy as np
import pytest

from simulator.workload.drawing.cohorts import (
    diurnal_duty,
    diurnal_windows,
    drain_windows,
    join_times_s,
    member_rate,
    presence,
    square_windows,
    thinned_rate,
)


def test_members_join_one_after_the_other():
    assert join_times_s(100.0, 60.0, 4).tolist() == [100, 115, 130, 145]


def test_the_duty_of_an_hour_is_that_of_blis():
    # R 4, peak 12: the examples of the page
    assert [diurnal_duty(hour, 12.0, 4.0) for hour in (0, 6, 12, 18)] == pytest.approx([0.25, 0.625, 1.0, 0.625])


def test_members_are_there_for_the_first_part_of_each_hour():
    windows = diurnal_windows(12.0, 4.0, days=2)

    assert windows[0] == (0.0, 900.0)
    assert windows[6] == pytest.approx((6 * 3600, 6 * 3600 + 2250))
    assert windows[12] == pytest.approx((12 * 3600, 12 * 3600 + 3600 * diurnal_duty(13, 12.0, 4.0) + 3600))
    assert windows[-1][0] == 47 * 3600


def test_a_drain_shrinks_in_ten_steps():
    windows = drain_windows(50.0, 100.0)

    # the first segment is active throughout, so it is one with the second's 9 s
    assert windows == [(50.0, 69.0)] + [(50.0 + 10 * i, 50.0 + 10 * i + 10 - i) for i in range(2, 10)]


def test_who_has_left_sends_nothing():
    assert presence(10.0, 20.0) == [(10, 20)]
    assert presence(10.0, math.inf) == [(10, math.inf)]
    assert presence(10.0, 20.0, [(0, 5), (8, 12), (15, 30)]) == [(10, 12), (15, 20)]
    assert presence(30.0, 20.0) == []


def test_arrivals_of_a_member_jump_over_its_absence():
    # 4/s for 2 members: 2/s each, in [1, 2) and [5, 6)
    course = member_rate(4.0, 2, [(1.0, 2.0), (5.0, 6.0)])

    assert course.times_s(np.array([1.0, 2.0, 3.0, 4.0, 5.0])).tolist() == [1.5, 2.0, 5.5, 6.0, math.inf]
    assert course.requests_until(math.inf) == 4
    assert member_rate(4.0, 2, [(1.0, math.inf)]).requests_until(11.0) == 20


def test_thin_and_square_send_as_many():
    duties = [0.25, 1.0, 0.5]
    square = member_rate(10.0, 1, square_windows(duties, 10.0))
    thin = thinned_rate(10.0, 1, duties, 10.0, presence(0.0, math.inf))

    for end in (10.0, 20.0, 30.0, 99.0):
        assert thin.requests_until(end) == pytest.approx(square.requests_until(end))
    assert thin.requests_until(5.0) == 12.5                 # 2.5/s; the square wave is over by then
    assert square.requests_until(5.0) == 25
    assert thinned_rate(10.0, 1, duties, 10.0, presence(5.0, 15.0)).requests_until(99.0) == 12.5 + 50
