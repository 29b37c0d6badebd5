"""Cohorts: equal clients that join and leave, and are more active at some times than at others.

Source of the duty cycles: inference-sim/inference-sim (BLIS), sim/workload/cohort.go, commit f90a1e3a.
"""
from math import ceil, cos, floor, inf, pi
from typing import NamedTuple

import numpy as np

from simulator.workload.columns import nearest
from simulator.workload.drawing.arrivals import arrival_times_s
from simulator.workload.drawing.rates.base import Course
from simulator.workload.drawing.rates.segments import Repeated, Segments
from simulator.workload.limits import MAX_TIME_NS

HOUR_S = 3600.0
HOURS = 24
DRAIN_SEGMENTS = 10
MARGIN = 1e-9               # busy time is rounded: a little more is drawn, and late arrivals are cut off
HALF_NS = 5e-10


class Duties(NamedTuple):
    """The activity of members over time.

    starts_s : float64 (n,), when each segment of time begins, ascending from 0.
    parts : float64 (n,), 0 to 1, the part of the segment in which members are busy, or the part of their rate in it.
    period_s : segments repeat after it; inf: the last segment has no end, and its part is 0 or 1.
    """

    starts_s: np.ndarray
    parts: np.ndarray
    period_s: float = inf


ALWAYS = Duties(np.zeros(1), np.ones(1))


def diurnal_duties(peak_hour: float, peak_to_trough: float, period_s: float = HOURS * HOUR_S) -> Duties:
    """Return BLIS's day: 24 hours, with parts from 1 / R at the trough to 1.

    The part of the hour from h on is (1 + cos(2 pi (h - peak) / 24)) / 2 (1 - 1 / R) + 1 / R. A period of another
    length has 24 segments, too, and its peak at the same time, `peak_hour` hours after its beginning.
    """
    least, starts_s = 1 / peak_to_trough, np.arange(HOURS) * (period_s / HOURS)
    turns = 2 * pi * (starts_s - peak_hour * HOUR_S) / period_s
    return Duties(starts_s, np.array([(1 + cos(turn)) / 2 * (1 - least) + least for turn in turns.tolist()]), period_s)


def spike_duties(at_s: float, duration_s: float) -> Duties:
    """Return the duties of members that are busy for some time from an instant on."""
    return _without_gaps([0.0, at_s, at_s + duration_s], [0.0, 1.0, 0.0])


def drain_duties(at_s: float, duration_s: float) -> Duties:
    """Return BLIS's drain: always busy until a time, then less and less.

    The i-th of ten segments has the part (10 - i) / 10; then the part is 0.
    """
    steps = np.arange(DRAIN_SEGMENTS + 1)
    return _without_gaps(np.append(0.0, at_s + duration_s * steps / DRAIN_SEGMENTS),
                         np.append(1.0, (DRAIN_SEGMENTS - steps) / DRAIN_SEGMENTS))


def square(duties: Duties) -> Duties:
    """Return the square wave: busy only in the first part of each segment."""
    lengths_s = np.diff(np.append(duties.starts_s, duties.period_s))
    turns_s = duties.starts_s + np.where(duties.parts > 0, lengths_s, 0.0) * duties.parts
    return _without_gaps(np.column_stack([duties.starts_s, turns_s]).ravel(), np.tile([1.0, 0.0], len(turns_s)),
                         duties.period_s)


def busy_course(duties: Duties) -> Course:
    """Return the busy seconds, as the course of a rate."""
    course = Segments(duties.starts_s, duties.parts)
    return course if duties.period_s == inf else Repeated(course, duties.period_s)


def join_times_s(join_s: float, join_spread_s: float, population: int) -> np.ndarray:
    """Return when members join, member i at join_s + join_spread_s i / population."""
    return join_s + join_spread_s * np.arange(population) / population


class Presence(NamedTuple):
    """When a member is present.

    leave_s : all its arrivals are before it.
    busy : the course of its duties.
    """

    join_s: float
    leave_s: float
    duties: Duties
    busy: Course

    def busy_s(self, until_s: float) -> float:
        """Return its busy seconds until a time."""
        last_s = min(until_s, self.leave_s)
        return max(self.busy.requests_until(last_s) - self.busy.requests_until(self.join_s), 0.0)

    def arrivals_s(self, process, generator, until_s: float) -> np.ndarray:
        """Return when its requests arrive, before a time.

        The process draws in busy time alone, so that arrivals skip the rest.
        """
        before_s = self.busy.requests_until(self.join_s)
        sums_s = arrival_times_s(process, generator, None, self.busy_s(until_s) * (1 + MARGIN) + MARGIN)
        times_s = np.maximum(self.busy.times_s(before_s + sums_s), self.join_s)
        return times_s[:np.searchsorted(times_s, min(until_s, self.leave_s - HALF_NS))]

    def stays_ns(self, until_s: float) -> np.ndarray:
        """Return the intervals before a time in which it is busy, int64 (w, 2).

        Its duties must be a square wave.
        """
        starts_s, parts, period_s = self.duties
        last_s = min(until_s, self.leave_s)
        ends_s = np.append(starts_s[1:], period_s)
        if period_s < inf:
            periods_s = period_s * np.arange(floor(self.join_s / period_s), ceil(last_s / period_s))[:, None]
            starts_s, ends_s, parts = (periods_s + starts_s).ravel(), (periods_s + ends_s).ravel(), np.tile(
                parts, len(periods_s))
        stays_s = np.column_stack([np.maximum(starts_s, self.join_s), np.minimum(ends_s, last_s)])[parts > 0]
        return nearest(np.minimum(_merged(stays_s) * 1e9, MAX_TIME_NS))


class Windows(NamedTuple):
    """Windows in which arrivals count, as in BLIS.

    Arrivals at other times are dropped, not postponed.

    spans_ns : int64 (w, 2), begins and ends, ascending and disjoint.
    """

    spans_ns: np.ndarray

    @classmethod
    def of(cls, spans_ns: np.ndarray) -> "Windows":
        """Return windows of spans in any order, which may overlap."""
        return cls(_merged(spans_ns))

    @property
    def last_s(self) -> float:
        """Return the end of the last window."""
        return float(self.spans_ns[-1, 1]) / 1e9

    def overlaps(self, other: "Windows") -> bool:
        """Return whether windows of both have a common time."""
        (begins, ends), (begins_of_other, ends_of_other) = self.spans_ns.T, other.spans_ns.T
        return bool(np.any((begins[:, None] < ends_of_other) & (begins_of_other < ends[:, None])))

    def busy_s(self, until_s: float) -> float:
        """Return the seconds until a time in which arrivals count."""
        return float(np.diff(np.minimum(self.spans_ns / 1e9, until_s), axis=1).sum())

    def arrivals_s(self, process, generator, until_s: float) -> np.ndarray:
        """Return when requests arrive, before a time."""
        times_s = arrival_times_s(process, generator, None, min(until_s, self.last_s))
        times_ns, (begins_ns, ends_ns) = nearest(times_s * 1e9), self.spans_ns.T
        window = np.searchsorted(begins_ns, times_ns, side="right") - 1
        return times_s[(window >= 0) & (times_ns < ends_ns[window])]


def _merged(spans: np.ndarray) -> np.ndarray:
    """Return spans (w, 2) without empty ones, ascending, with touching ones merged."""
    spans = spans[spans[:, 0] < spans[:, 1]]
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    if not len(spans):
        return spans
    begins, ends = spans[:, 0], np.maximum.accumulate(spans[:, 1])
    is_new = begins[1:] > ends[:-1]
    return np.column_stack([begins[np.append(True, is_new)], ends[np.append(is_new, True)]])


def _without_gaps(starts_s, parts, period_s: float = inf) -> Duties:
    """Return duties without segments of length 0."""
    starts_s, parts = np.asarray(starts_s), np.asarray(parts)
    with np.errstate(invalid="ignore"):         # the last segment may begin at inf
        lasts = np.diff(np.append(starts_s, period_s)) > 0
    return Duties(starts_s[lasts], parts[lasts], period_s)
