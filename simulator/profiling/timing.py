"""Repeated runs of a kernel, and their summary: the median, and the spread of repeats."""
import math
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

Run = Callable[[], object]
Make = Callable[[], tuple[Run, int]]        # -> a call with operands of its own, and their bytes


class Effort(NamedTuple):
    """The time for a point."""

    repeats: int                # at most
    min_repeats: int
    point_s: float              # no repeat begins after this time, once there are `min_repeats`
    repeat_s: float = 1e-3      # calls are added to a repeat up to this
    max_calls: int = 32


FULL = Effort(repeats=20, min_repeats=5, point_s=1.0)
QUICK = Effort(repeats=10, min_repeats=3, point_s=0.3)


class Measurement(NamedTuple):
    """The time of one call."""

    latency_ms: float           # median of the repeats
    spread_frac: float          # distance of the quartiles over the median
    repeats: int
    timing: str                 # cuda_graph, cuda_events, perf_counter


def summary(times_s: list[float], timing: str) -> Measurement:
    """Return the median and the spread of the seconds of single calls.

    ValueError: the clock is too coarse to measure them.
    """
    median = statistics.median(times_s)
    if median <= 0:
        raise ValueError("the clock is too coarse: the median of the repeats is 0")
    quartiles = statistics.quantiles(times_s, n=4, method="inclusive") if len(times_s) > 1 else [median] * 3
    return Measurement(median * 1e3, (quartiles[2] - quartiles[0]) / median, len(times_s), timing)


def num_calls(estimate_s: float, effort: Effort) -> int:
    """Return the number of calls in a repeat."""
    return min(max(math.ceil(effort.repeat_s / max(estimate_s, 1e-9)), 1), effort.max_calls)


def repeated(once: Callable[[], float], effort: Effort, clock: Callable[[], float]) -> list[float]:
    """Return the results of `once`, called as often as the effort allows."""
    began, found = clock(), []
    while len(found) < effort.repeats and (len(found) < effort.min_repeats or clock() - began < effort.point_s):
        found.append(once())
    return found


class HostTimer:
    """Times calls by a clock of the host; caches are in the state that calls leave.

    Parameters
    ----------
    clock : seconds.
    settle : waits until the device is idle, before each repeat.
    """

    def __init__(self, effort: Effort, clock: Callable[[], float] = time.perf_counter, settle: Run = lambda: None):
        self._effort, self._clock, self._settle = effort, clock, settle

    def measure(self, make: Make) -> Measurement:
        """Return the time of a call."""
        run, _ = make()
        run()                                           # warm-up: allocations, choice of kernels
        calls = num_calls(self._once(run, 1), self._effort)
        return summary(repeated(lambda: self._once(run, calls), self._effort, self._clock), "perf_counter")

    def _once(self, run: Run, calls: int) -> float:
        self._settle()
        began = self._clock()
        for _ in range(calls):
            run()
        return (self._clock() - began) / calls
