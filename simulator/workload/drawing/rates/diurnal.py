"""`diurnal`: a rate that rises and falls once a day, as a cosine."""
from math import ceil, cos, inf, isinf, log2, pi, sin
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.workload.drawing.rates.base import Changing, Course

NANOSECOND = 1e-9


class DiurnalParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """rate(t) = trough + (peak - trough) (1 + cos(2 pi (t - peak time) / period)) / 2."""

    mean_per_s: Annotated[float, Meta(gt=0, le=1e9, description="mean rate over a period")]
    peak_hour: Annotated[float, Meta(ge=0, le=1e6, extra={"unit": "h"}, description=(
        "when the rate is highest, in hours since the beginning"))] = 12.0
    peak_to_trough: Annotated[float, Meta(ge=1, le=1e9, description=(
        "highest over lowest rate; peak = 2 mean R / (R + 1)"))] = 4.0
    period_s: Annotated[float, Meta(ge=1e-3, le=9e9, description="from peak to peak")] = 86_400.0


class Diurnal(Changing):
    """`diurnal`."""

    Parameters = DiurnalParameters

    def __init__(self, parameters: DiurnalParameters):
        self._parameters = parameters
        self.mean_per_s = parameters.mean_per_s

    def course(self, generator):
        """Return the cosine; no part of it is random."""
        return Cosine(self._parameters)


class Cosine(Course):
    """rate(t) = m + A cos(w t - p), so Lambda(t) = m t + A (sin(w t - p) + sin p) / w.

    m is the mean, A = (peak - trough) / 2 = m (R - 1) / (R + 1), w = 2 pi / period, p = w peak time.
    """

    def __init__(self, given: DiurnalParameters):
        ratio = given.peak_to_trough
        self._mean = given.mean_per_s
        self._swing = given.mean_per_s * (ratio - 1) / (ratio + 1)
        self._period_s = given.period_s
        self._turn = 2 * pi / given.period_s
        self._phase = self._turn * ((given.peak_hour * 3600) % given.period_s)

    def rate_per_s(self, time_s: float) -> float:
        """Return the rate at one time."""
        return self._mean + self._swing * cos(self._turn * (time_s % self._period_s) - self._phase)

    def requests_until(self, time_s):
        """Return the closed integral."""
        if isinf(time_s):
            return inf
        periods, since_s = divmod(time_s, self._period_s)
        return periods * self._mean * self._period_s + float(self._within(np.array([since_s]))[0])

    def times_s(self, due):
        """Return the times to a nanosecond, by bisection inside the period."""
        in_period = self._mean * self._period_s
        periods = np.floor(due / in_period)
        rest = due - periods * in_period
        low, high = np.zeros_like(rest), np.full_like(rest, self._period_s)
        for _ in range(ceil(log2(self._period_s / NANOSECOND))):
            middle = (low + high) / 2
            is_below = self._within(middle) < rest
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        return periods * self._period_s + np.where(rest > 0, high, 0.0)

    def _within(self, since_s: np.ndarray) -> np.ndarray:
        wave = np.sin(self._turn * since_s - self._phase) + sin(self._phase)
        return self._mean * since_s + self._swing / self._turn * wave
