"""Members that join and leave, and how busy they are meanwhile."""
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.workload.drawing.arrivals import Constant, Poisson, RateParameters
from simulator.workload.drawing.cohorts import (
    ALWAYS,
    Duties,
    Presence,
    busy_course,
    diurnal_duties,
    drain_duties,
    join_times_s,
    spike_duties,
    square,
)

HALVES = Duties(np.array([0.0, 10.0]), np.array([0.25, 1.0]), 20.0)        # of 20 s: 2.5 s, not 7.5 s, 10 s
S = 10**9


def presence(duties=ALWAYS, join_s=0.0, leave_s=math.inf):
    return Presence(join_s, leave_s, duties, busy_course(duties))


def stays_s(duties, until_s, **keys):
    return (presence(duties, **keys).stays_ns(until_s) / S).tolist()


def arrivals_s(duties, rate_per_s, until_s, **keys):
    process = Constant(RateParameters(rate_per_s=rate_per_s))
    return presence(duties, **keys).arrivals_s(process, None, until_s).tolist()


def test_members_join_one_after_the_other():
    assert join_times_s(100.0, 60.0, 4).tolist() == [100, 115, 130, 145]


def test_the_parts_of_the_hours_are_those_of_blis():
    # R 4, peak 12: the examples of the page
    duties = diurnal_duties(12.0, 4.0)

    assert duties.parts[[0, 6, 12, 18]] == pytest.approx([0.25, 0.625, 1.0, 0.625])
    assert (duties.starts_s[6], duties.period_s) == (6 * 3600, 24 * 3600)


def test_a_shorter_day_has_as_many_hours():
    # of 150 s each; the peak, at 0.5 h = 1,800 s, is in the middle
    duties = diurnal_duties(0.5, 4.0, period_s=3600.0)

    assert duties.starts_s[:3].tolist() == [0, 150, 300]
    assert duties.parts == pytest.approx(diurnal_duties(12.0, 4.0).parts)


def test_in_square_waves_members_are_there_for_the_first_part_of_each_hour():
    stays = stays_s(square(diurnal_duties(12.0, 4.0)), 48 * 3600.0)

    assert stays[0] == [0.0, 900.0]
    assert stays[6] == pytest.approx([6 * 3600, 6 * 3600 + 2250])
    assert stays[12][0] == 12 * 3600 and 13 * 3600 < stays[12][1] < 14 * 3600   # no gap between hours 12 and 13
    assert stays[-1][0] == 47 * 3600
    assert len(stays) == 2 * 23


def test_a_drain_shrinks_in_ten_steps():
    # all until 50 s; of the first segment all, so it is one with the second's 9 s
    stays = stays_s(square(drain_duties(50.0, 100.0)), math.inf)

    assert stays == [[0.0, 69.0]] + [[50.0 + 10 * i, 50.0 + 10 * i + 10 - i] for i in range(2, 10)]


def test_a_spike_is_one_stay():
    assert stays_s(spike_duties(5.0, 2.0), math.inf) == [[5, 7]]
    assert stays_s(spike_duties(0.0, 2.0), math.inf) == [[0, 2]]


def test_who_has_left_sends_nothing():
    assert stays_s(ALWAYS, math.inf, join_s=10.0, leave_s=20.0) == [[10, 20]]
    assert stays_s(ALWAYS, math.inf, join_s=10.0) == [[10, 9e9]]
    assert stays_s(ALWAYS, 15.0, join_s=10.0, leave_s=20.0) == [[10, 15]]
    assert stays_s(ALWAYS, 10.0, join_s=10.0) == []
    assert stays_s(square(HALVES), 45.0, join_s=1.0, leave_s=100.0) == [[1, 2.5], [10, 22.5], [30, 42.5]]
    assert stays_s(square(HALVES), 99.0, join_s=5.0, leave_s=8.0) == []


def test_arrivals_of_a_member_jump_over_its_absence():
    # 2/s, from 1 s on: 1.5 of 2.5 s, then 10 to 22.5; so every half second of these
    assert arrivals_s(square(HALVES), 2.0, 11.2, join_s=1.0) == [1.5, 2.0, 2.5, 10.5, 11.0]
    assert arrivals_s(ALWAYS, 2.0, 99.0, join_s=100.0) == []
    assert arrivals_s(ALWAYS, 2.0, 9.0, join_s=1.0, leave_s=2.5) == [1.5, 2.0]          # at 2.5 it has left
    assert arrivals_s(square(HALVES), 2.0, 99.0, join_s=5.0, leave_s=8.0) == []


def test_a_rate_is_thinned_by_the_part_of_each_segment():
    # 4/s: 1/s until 10, 4/s until 20, 1/s again
    times_s = arrivals_s(HALVES, 4.0, 23.0, join_s=7.0)

    assert times_s == pytest.approx([8, 9, 10, *np.arange(10.25, 20.1, 0.25), 21, 22])


def test_thin_and_square_are_busy_as_long():
    thin, wave = presence(HALVES), presence(square(HALVES))

    for until_s in (10.0, 20.0, 30.0, 400.0):
        assert thin.busy_s(until_s) == pytest.approx(wave.busy_s(until_s))
    assert thin.busy_s(2.0) == 0.5 and wave.busy_s(2.0) == 2.0
    assert presence(HALVES, 5.0, 15.0).busy_s(math.inf) == 1.25 + 5


SEGMENTS = st.lists(st.tuples(st.sampled_from([0.25, 1.0, 3.0]), st.sampled_from([0.0, 0.5, 0.75, 1.0])), min_size=1,
                    max_size=5).filter(lambda segments: any(part for _, part in segments))


@given(segments=SEGMENTS, is_square=st.booleans(), join_s=st.integers(0, 40), stay_s=st.integers(1, 60),
       seed=st.integers(0, 99))
def test_arrivals_are_where_a_slow_walk_through_the_segments_puts_them(segments, is_square, join_s, stay_s, seed):
    lengths, parts = zip(*segments, strict=True)
    starts_s = np.concatenate([[0.0], np.cumsum(lengths)[:-1]])
    duties = Duties(starts_s, np.array(parts), float(sum(lengths)))
    duties = square(duties) if is_square else duties
    join_s, leave_s = join_s / 4, (join_s + stay_s) / 4
    process = Poisson(RateParameters(rate_per_s=3.0))

    found = presence(duties, join_s, leave_s).arrivals_s(process, np.random.default_rng(seed), 11.0)

    gaps_s = np.random.default_rng(seed).standard_exponential(1000) / 3.0
    assert found == pytest.approx(walked(segments, is_square, join_s, min(leave_s, 11.0), gaps_s), abs=1e-9)
    assert ((found >= join_s) & (found < leave_s)).all()


def walked(segments, is_square, join_s, leave_s, gaps_s):
    """Return arrivals by the definition: the busy time between two of them is the gap."""
    pieces, at_s = [], 0.0
    while at_s < leave_s:
        for length, part in segments:
            cut = length * part if is_square else length
            pieces += [(at_s, at_s + cut, 1.0 if is_square else part), (at_s + cut, at_s + length, 0.0)]
            at_s += length
    found, left_s = [], gaps_s[0]
    for begin, end, level in pieces:
        begin, end = max(begin, join_s), min(end, leave_s)
        while level and end - begin > 0 and left_s <= (end - begin) * level:
            begin += left_s / level
            found.append(begin)
            left_s = gaps_s[len(found)]
        left_s -= max(end - begin, 0.0) * level
    return np.array(found)
