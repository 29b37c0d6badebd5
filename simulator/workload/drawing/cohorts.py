"""Cohorts: clients alike that join and leave; when each is there, and at which rate it sends.

Source of the square windows: inference-sim/inference-sim, sim/workload/cohort.go, commit f90a1e3a.
"""
from math import cos, inf, pi

import numpy as np

from simulator.workload.drawing.rates.segments import Segments

HOUR_S = 3600.0
HOURS = 24
DRAIN_SEGMENTS = 10
Windows = list[tuple[float, float]]         # from, to; s, ascending, apart from each other


def join_times_s(join_s: float, join_spread_s: float, population: int) -> np.ndarray:
    """Return when members join, member i at join_s + join_spread_s i / population."""
    return join_s + join_spread_s * np.arange(population) / population


def diurnal_duty(hour: int, peak_hour: float, peak_to_trough: float) -> float:
    """Return the part of an hour in which members are active.

    It is 1 at the peak and 1 / R at the trough: m(h) = (1 + cos(2 pi (h - peak) / 24)) / 2 (1 - 1 / R) + 1 / R.
    """
    least = 1 / peak_to_trough
    return (1 + cos(2 * pi * (hour - peak_hour) / HOURS)) / 2 * (1 - least) + least


def square_windows(duties: list[float], segment_s: float, start_s: float = 0.0) -> Windows:
    """Return a square wave: active in the first part of each segment, its duty."""
    begins = [start_s + segment_s * i for i in range(len(duties))]
    return _merged([(begin, begin + segment_s * duty) for begin, duty in zip(begins, duties, strict=True)])


def diurnal_windows(peak_hour: float, peak_to_trough: float, days: int = 1) -> Windows:
    """Return BLIS's diurnal duty cycle: the first m(h) of each hour."""
    return square_windows([diurnal_duty(hour, peak_hour, peak_to_trough) for hour in range(HOURS)] * days, HOUR_S)


def drain_windows(start_s: float, ramp_s: float) -> Windows:
    """Return BLIS's drain: ten segments, of segment i the first (10 - i) / 10."""
    duties = [(DRAIN_SEGMENTS - i) / DRAIN_SEGMENTS for i in range(DRAIN_SEGMENTS)]
    return square_windows(duties, ramp_s / DRAIN_SEGMENTS, start_s)


def presence(join_s: float, leave_s: float, windows: Windows | None = None) -> Windows:
    """Return when a member sends: inside its windows (None: always) while there."""
    found = [(max(join_s, begin), min(leave_s, end)) for begin, end in windows or [(0.0, inf)]]
    return [(begin, end) for begin, end in found if begin < end]


def member_rate(cohort_rate_per_s: float, population: int, windows: Windows) -> Segments:
    """Return the course of one member's rate.

    It is the cohort's over its population inside the windows, else 0.
    """
    starts_s = np.array(sorted({0.0, *_edges(windows)}))
    return Segments(starts_s, np.where(_is_inside(starts_s, windows), cohort_rate_per_s / population, 0.0))


def thinned_rate(cohort_rate_per_s: float, population: int, duties: list[float], segment_s: float,
                 windows: Windows) -> Segments:
    """Return the same with a rate multiplied by each segment's duty, no square wave."""
    edges = {0.0, *(segment_s * i for i in range(len(duties) + 1)), *_edges(windows)}
    starts_s = np.array(sorted(edges))
    segment = np.searchsorted(segment_s * np.arange(1, len(duties) + 1), starts_s, side="right")
    rates = np.append(np.array(duties), 0.0)[segment] * (cohort_rate_per_s / population)
    return Segments(starts_s, np.where(_is_inside(starts_s, windows), rates, 0.0))


def _edges(windows: Windows) -> set[float]:
    return {at for window in windows for at in window if at < inf}


def _is_inside(times_s: np.ndarray, windows: Windows) -> np.ndarray:
    inside = np.zeros(len(times_s), bool)
    for begin, end in windows:
        inside |= (times_s >= begin) & (times_s < end)
    return inside


def _merged(windows: Windows) -> Windows:
    merged = []
    for begin, end in windows:
        if merged and merged[-1][1] >= begin:
            merged[-1] = (merged[-1][0], end)
        elif end > begin:
            merged.append((begin, end))
    return merged
