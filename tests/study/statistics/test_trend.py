"""A queue that grows is told from one that varies."""
import numpy as np
import pytest

from simulator.study.statistics.trend import (
    GROWING,
    LEAST_REQUESTS,
    STABLE,
    backlog,
    backlog_of,
    in_system,
    num_of_ramp,
    rises,
)


def served(arrived, service_s):
    """Return when each of a single server's customers begins and ends, first come first served."""
    begins, ends, free = np.empty(len(arrived)), np.empty(len(arrived)), 0.0
    for i, at in enumerate(arrived):
        begins[i] = max(at, free)
        ends[i] = free = begins[i] + service_s
    return begins, ends


@pytest.mark.parametrize(("load", "expected"), [(0.5, "stable"), (0.9, "stable"), (1.3, "growing"), (3.0, "growing")])
def test_server_is_stable_below_what_it_can_serve(load, expected):
    arrived = np.cumsum(np.random.default_rng(2).exponential(1 / load, 20_000))
    begins, ends = served(arrived, 1.0)
    assert backlog(arrived, ends, begins) == expected


def test_who_comes_sees_those_who_have_not_left():
    # 0 sees nobody; 1 sees the first; 2 comes as the first leaves; 3 sees the second and the third.
    assert in_system(np.array([0.0, 1, 2, 3]), np.array([2.0, 5, 4, 9])).tolist() == [0, 1, 1, 2]


def test_few_requests_tell_nothing():
    times = np.arange(39.0)
    assert backlog(times, times + 1, times) == "too short to tell"
    times = np.arange(40.0)
    assert backlog(times, times + 1, times) == "stable"


def test_where_few_have_a_first_token_the_number_in_the_system_decides():
    times = np.arange(100.0)
    assert backlog(times, np.where(times < 15, times + 1, np.inf), np.where(times < 15, times, np.nan)) == "growing"
    assert backlog(times, times + 1, np.where(times < 15, times, np.nan)) == "stable"      # they give up after 1 s


def test_lines_of_older_versions_are_read():
    assert [backlog_of({"backlog": word}) for word in ("unknown", "growing")] == ["too short to tell", "growing"]


def test_rise_must_be_significant_and_large():
    noise = np.random.default_rng(4).normal(0, 1, 2000)
    assert rises(np.linspace(10, 20, 2000) + noise)
    assert not rises(np.linspace(100, 105, 2000) + noise)           # 5 % of the mean
    assert not rises(10 + 30 * noise)                               # no slope
    assert not rises(np.linspace(20, 10, 2000) + noise)


def test_a_system_that_fills_slowly_does_not_grow():
    # 33 requests/s for 300 s; the first stay 15 s, those that come after 90 s 40 s: a third of the run is a ramp
    arrived = np.arange(10_000) / 33.0
    stays = 15.0 + 25.0 * np.minimum(arrived / 90.0, 1.0)
    first_token = arrived + stays * 2e-3

    assert rises(in_system(arrived, arrived + stays).astype(float)) and rises(first_token - arrived)    # with the ramp
    assert backlog(arrived, arrived + stays, first_token) == STABLE


def test_a_queue_that_grows_behind_a_ramp_grows():
    arrived = np.arange(10_000) / 33.0
    stays = 27.0 + 0.2 * arrived
    assert backlog(arrived, arrived + stays, arrived + stays * 2e-3) == GROWING


def test_a_ramp_takes_half_of_the_requests_at_most():
    arrived = np.arange(1000.0)
    assert num_of_ramp(arrived, arrived + 10.0) == 20
    assert num_of_ramp(arrived, arrived + 1e6) == num_of_ramp(arrived, np.full(1000, np.inf)) == 500
    assert num_of_ramp(arrived[:50], arrived[:50] + 1e6) == 50 - LEAST_REQUESTS
    assert num_of_ramp(arrived, arrived) == 0
