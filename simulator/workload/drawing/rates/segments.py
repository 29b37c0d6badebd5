"""A rate in pieces, each constant or a straight line: its integral and the inverse of the integral, in closed form."""
from math import inf, isinf

import numpy as np

from simulator.workload.drawing.rates.base import Course


class Segments(Course):
    """The course of a rate that is a_i + b_i (t - t_i) from t_i to the next.

    Parameters
    ----------
    starts_s : float64 (n,), ascending from 0.
    rates_per_s : float64 (n,), a_i >= 0.
    slopes_per_s2 : float64 (n,), b_i, the last 0; None: all 0.
    """

    def __init__(self, starts_s: np.ndarray, rates_per_s: np.ndarray, slopes_per_s2: np.ndarray | None = None):
        self._starts_s = starts_s
        self._rates = rates_per_s
        self._slopes = np.zeros_like(rates_per_s) if slopes_per_s2 is None else slopes_per_s2
        spans = np.diff(starts_s)
        within = (self._rates[:-1] + self._slopes[:-1] * spans / 2) * spans
        self._due = np.concatenate([[0.0], np.cumsum(within)])      # at each start
        self._ends_s = np.append(starts_s[1:], np.inf)

    def requests_until(self, time_s):
        """Return the integral, exact up to the rounding of its terms."""
        if np.isinf(time_s):
            return float(self._due[-1]) if self._rates[-1] == 0 else np.inf
        piece = int(np.searchsorted(self._starts_s, time_s, side="right")) - 1
        since_s = time_s - self._starts_s[piece]
        return float(self._due[piece] + (self._rates[piece] + self._slopes[piece] * since_s / 2) * since_s)

    def times_s(self, due):
        """Return the times.

        For a rest r the time is 2 r / (a + sqrt(a^2 + 2 b r)) after the start of a piece. That is the smaller root of
        a x + b x^2 / 2 = r, written so that nothing cancels if b is small.
        """
        pieces = np.maximum(np.searchsorted(self._due, due, side="left") - 1, 0)
        rest = np.maximum(due - self._due[pieces], 0.0)
        rates = self._rates[pieces]
        root = np.sqrt(np.maximum(rates * rates + 2 * self._slopes[pieces] * rest, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            since_s = np.where(rest > 0, 2 * rest / (rates + root), 0.0)
        return np.minimum(self._starts_s[pieces] + since_s, self._ends_s[pieces])


class Repeated(Course):
    """The course of a rate that repeats after each period.

    It must be positive somewhere.
    """

    def __init__(self, course: Course, period_s: float):
        self._course, self._period_s = course, period_s
        self._due = course.requests_until(period_s)         # in each period

    def requests_until(self, time_s):
        """Return the integral, which has no bound."""
        if isinf(time_s):
            return inf
        periods, since_s = divmod(time_s, self._period_s)
        return periods * self._due + self._course.requests_until(since_s)

    def times_s(self, due):
        """Return the times."""
        periods = np.maximum(np.ceil(due / self._due) - 1, 0.0)
        rest = np.clip(due - periods * self._due, 0.0, self._due)
        return periods * self._period_s + self._course.times_s(rest)
