"""The arrivals of a drawn workload: a process, and a rate that may change.

A rate lambda(t) with integral Lambda(t): gaps of mean 1 from the process add up to s_k, and request k arrives at the
smallest t with Lambda(t) = s_k. So nothing arrives while the rate is 0, and cv is that of the rescaled time.
Source: E. Cinlar, Introduction to Stochastic Processes, 1975, chapter 4 (time changes of Poisson processes).
"""
import math
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import nearest
from simulator.workload.drawing.arrivals import RunningTimes, arrival_times_s
from simulator.workload.drawing.ramps import goes_by_number, ramped_times_s
from simulator.workload.drawing.rates.base import Changing, Course, Placement
from simulator.workload.limits import MAX_TIME_NS

MAX_REQUESTS = 10**9
MARGIN = 1e-9               # Lambda is rounded: a little more is drawn, and late arrivals are cut off
SURELY = 1 - 1e-6           # of Lambda: arrivals due by then come in time
BLOCK = 2**16               # arrivals that are counted at a time


class Arrival(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arrivals of requests; the keys of the process are in this table, too."""

    process: Annotated[str, Meta(description="process that draws the gaps between arrivals")] = "poisson"
    parameters: Annotated[Any, Meta(extra={"kind": "arrival"})]


class RateChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rate that changes; the keys of its kind are in this table, too."""

    kind: Annotated[str, Meta(description="the kind of change")]
    parameters: Annotated[Any, Meta(extra={"kind": "rate"})]


class Timing:
    """The arrivals of a workload.

    Parameters
    ----------
    arrival : the process; None: requests come otherwise, or `rate` alone places them.
    rate : None: the constant rate of the process.
    noun : name of an arrival in keys.
    """

    def __init__(self, arrival: Arrival | None, rate: RateChoice | None, noun: str = "request"):
        self._noun = noun
        self.process = arrival and registry.load("arrival", arrival.process)(arrival.parameters)
        self.rate = rate and registry.load("rate", rate.kind)(rate.parameters)
        self._name = arrival.process if arrival else "poisson"
        self._parameters = arrival.parameters if arrival else None

    @property
    def ends_by_itself(self) -> bool:
        """Whether the number of arrivals is limited by the file or the rate itself."""
        return isinstance(self.rate, Placement) or isinstance(self.process, Placement)

    def arrivals_ns(self, gaps, streams: RandomStreams, num_requests: int | None, duration_s: float | None,
                    time_scale: float = 1.0) -> np.ndarray:
        """Return the first `num_requests` arrivals before `duration_s`, int64 ns.

        Parameters
        ----------
        gaps : np.random.Generator or RandomState, draws for the process.
        streams : source of the rate's own random stream.
        time_scale : multiplies the arrivals.

        Raises
        ------
        InputErrors
            No request, too many or too late; a rate and a process that do not fit together.
        """
        times_s = self._times_s(gaps, streams, num_requests, math.inf if duration_s is None else duration_s)
        return in_ns(times_s, duration_s, time_scale, self._noun)

    def running(self, gaps, streams: RandomStreams) -> "RunningArrivals":
        """Return the arrivals block by block.

        The process has no ramp, and the rate places no request itself.

        Raises
        ------
        InputErrors
            A rate and a process that do not fit together.
        """
        if self.rate is None:
            return RunningArrivals(RunningTimes(self.process, gaps), None)
        process = self._at_unit_rate()
        _check_mean(self._parameters, self.rate)
        return RunningArrivals(RunningTimes(process, gaps), self.rate.course(streams.generator("rate")))

    def _times_s(self, gaps, streams: RandomStreams, count: int | None, duration_s: float) -> np.ndarray:
        if isinstance(self.rate, Placement) and self.process is not None:
            raise _fault("arrival", "this [workload.rate] places requests itself; leave [workload.arrival] out")
        if self.ends_by_itself and not (self.rate and self.process):
            return self._placed(self.rate or self.process, streams, count, duration_s)
        if self.rate is not None:
            return self._rescaled(gaps, self.rate.course(streams.generator("rate")), count, duration_s)
        if self.process is None:
            raise _fault("arrival", "missing; expected a table with process and rate_per_s, or a closed loop in "
                         "[workload.load]")
        if goes_by_number(self._parameters):
            return ramped_times_s(self._at_unit_rate(), self._parameters, gaps, count, duration_s)
        if self.process.rate_per_s is None:
            raise _fault("arrival.rate_per_s", "missing; give it, or a ramp, or [workload.rate]")
        if count is None:
            check_number(duration_s * self.process.rate_per_s, f"{duration_s:g} s at {self.process.rate_per_s:g} "
                          "requests/s are")
        return arrival_times_s(self.process, gaps, count, duration_s)

    def _placed(self, placement: Placement, streams: RandomStreams, count: int | None, duration_s: float) -> np.ndarray:
        times_s = placement.arrivals_s(streams.generator("rate"))
        times_s = times_s[:np.searchsorted(times_s, duration_s)]
        if count is not None and len(times_s) < count and math.isinf(duration_s):
            raise _fault(f"num_{self._noun}s", f"the file says when {len(times_s)} {self._noun}s come, expected "
                         f"{count}")
        return times_s[:count]

    def _rescaled(self, gaps, course: Course, count: int | None, duration_s: float) -> np.ndarray:
        process = self._at_unit_rate()
        _check_mean(self._parameters, self.rate)
        due = math.inf if course.is_random and count is not None else course.requests_until(duration_s)
        if count is None:
            check_number(due, f"until {duration_s:g} s [workload.rate] makes")
        sums = arrival_times_s(process, gaps, count, due * (1 + MARGIN) + MARGIN)
        times_s = course.times_s(sums)
        times_s = times_s[:np.searchsorted(times_s, duration_s)]
        if math.isinf(duration_s) and count is not None and len(times_s) < count:
            raise _fault(f"num_{self._noun}s", f"[workload.rate] ends after {len(times_s)} {self._noun}s, expected "
                         f"{count}; give duration_s or fewer")
        return times_s

    def _at_unit_rate(self):
        """Return the process with gaps of mean 1."""
        chosen = registry.load("arrival", self._name)
        if self._parameters is None:
            return chosen(chosen.Parameters(rate_per_s=1.0))
        if not hasattr(self._parameters, "rate_per_s"):
            raise _fault("arrival.process", f'"{self._name}" has times of its own, which no [workload.rate] can change')
        return chosen(self._parameters.at_unit_rate() if hasattr(self._parameters, "at_unit_rate") else
                      msgspec.structs.replace(self._parameters, rate_per_s=1.0))


class RunningArrivals:
    """The arrivals of a workload, block by block; sizes of blocks do not show in them.

    Parameters
    ----------
    sums : the arrivals of the process. course : of the rate; None: it does not change.
    """

    def __init__(self, sums: RunningTimes, course: Course | None):
        self._sums, self._course = sums, course

    def next_s(self, count: int) -> np.ndarray:
        """Return the next arrivals in seconds; inf: the rate has ended."""
        times_s = self._sums.next_s(count)
        return times_s if self._course is None else self._course.times_s(times_s)

    def count_until(self, duration_s: float, most: int) -> int:
        """Return how many of the next `most` arrivals come in time; they are used up."""
        count, early = 0, -math.inf
        if self._course is not None:
            early = self._course.requests_until(duration_s) * SURELY
        while count < most:
            size = min(BLOCK, most - count)
            times_s = self._sums.next_s(size)
            if self._course is not None and times_s[-1] >= early:
                times_s = self._course.times_s(times_s)
            elif self._course is not None:
                times_s = np.zeros(size)
            due = int(np.searchsorted(times_s, duration_s))
            count += due
            if due < size:
                break
        return count


def in_ns(times_s: np.ndarray, duration_s: float | None, time_scale: float = 1.0, noun: str = "request") -> np.ndarray:
    """Return ascending arrivals in ns; raise InputErrors for none, or a late one."""
    if not len(times_s):
        nobody = "nobody arrives" if duration_s is None else f"no {noun} arrives before {duration_s:g} s"
        raise _fault("duration_s", nobody)
    with np.errstate(over="ignore"):            # late arrivals are refused, even at inf
        times_ns = times_s * time_scale * 1e9
    if times_ns[-1] > MAX_TIME_NS:
        raise _fault("arrival", f"the last {noun} arrives after {MAX_TIME_NS / 1e9:g} s")
    return nearest(times_ns)


def check_number(number: float, what: str) -> None:
    """Raise InputErrors for more requests than are possible; `what` names their cause."""
    if not number <= MAX_REQUESTS:
        raise _fault("duration_s", f"{what} more than {MAX_REQUESTS} requests; give num_requests or a lower rate")


def _check_mean(parameters, rate: Changing) -> None:
    given = getattr(parameters, "rate_per_s", None)
    for key in ("ramp", "rescale_to_rate"):
        if getattr(parameters, key, None):
            raise _fault(f"arrival.{key}", "goes by the number of requests, [workload.rate] by time; leave one out")
    if given is not None and not math.isclose(given, rate.mean_per_s, rel_tol=1e-9):
        raise _fault("arrival.rate_per_s", f"{given:g} disagrees with [workload.rate], whose mean is "
                     f"{rate.mean_per_s:g} requests/s; leave it out")


def _fault(key: str, text: str) -> InputErrors:
    return InputErrors([KeyFault(f"workload.{key}: {text}")])
