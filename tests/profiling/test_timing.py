"""Medians and spreads by hand, on a clock that only calls move; clocks of a device that throttles."""
import pytest

from simulator.profiling.machine import Gauges
from simulator.profiling.timing import Effort, HostTimer, num_calls, summary


def test_the_median_and_the_quartiles_of_repeats():
    found = summary([1e-3, 2e-3, 3e-3, 4e-3, 9e-3], "perf_counter")

    # quartiles 2 and 4 ms around a median of 3
    assert found == (3.0, pytest.approx(2 / 3), 5, "perf_counter")


def test_a_clock_that_stands_still_is_told():
    with pytest.raises(ValueError, match="too coarse"):
        summary([0.0, 0.0, 0.0], "perf_counter")


@pytest.mark.parametrize(("estimate_s", "calls"), [(1.0, 1), (1e-4, 10), (1e-9, 32), (0.0, 32)])
def test_short_kernels_are_called_more_often(estimate_s, calls):
    assert num_calls(estimate_s, Effort(5, 3, 1.0)) == calls


def test_a_call_takes_what_the_clock_says():
    now = [0.0]

    def run():
        now[0] += 0.25

    # 1 warm-up, 1 estimate; repeats of one call until 1 s is over: 4, at 0.25 s each
    found = HostTimer(Effort(20, 3, 1.0), clock=lambda: now[0]).measure(lambda: (run, 0))

    assert found == (250.0, 0.0, 4, "perf_counter")


def test_a_clock_below_nine_tenths_of_the_highest_is_throttled():
    now, clocks = [0.0], iter([1980, 1900, 1700])
    gauges = Gauges(lambda: {"clocks.sm": str(next(clocks))}, lambda: now[0])

    found = []
    for now[0] in (0.0, 5.0, 10.0, 20.0):       # the second is not yet due
        found.append(gauges.sm_mhz())

    assert found == ["1980", "1980", "1900", "1700"]
    assert gauges.num_throttled == 1            # 1700 < 0.9 x 1980 = 1782
