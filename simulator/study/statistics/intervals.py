"""Intervals of means, of differences and of shares."""
import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from simulator.study.statistics.student import t_quantile


class Estimate(NamedTuple):
    """A mean and the half-width of its interval.

    half_width : of its interval; NaN: one value alone has none.
    """

    mean: float
    half_width: float

    @property
    def low(self) -> float:
        """The lower end."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """The upper end."""
        return self.mean + self.half_width


def of_replications(values, confidence: float = 0.95) -> Estimate:
    """Return the mean of replications, with t(1 - alpha / 2, R - 1) s / sqrt(R).

    values : float64 (replications,). Of equal values the half-width is 0.
    """
    values = np.asarray(values, dtype=float)
    if len(values) == 0:
        return Estimate(math.nan, math.nan)
    if len(values) == 1 or not np.isfinite(values).all():
        return Estimate(float(values.mean()), math.nan)
    if (values == values[0]).all():             # their computed mean may differ in the last digit
        return Estimate(float(values[0]), 0.0)
    deviation = float(values.std(ddof=1)) / math.sqrt(len(values))
    return Estimate(float(values.mean()), t_quantile(0.5 + confidence / 2, len(values) - 1) * deviation)


def of_pairs(values, baseline, confidence: float = 0.95) -> Estimate:
    """Return the mean of `values - baseline`, replication by replication.

    Both had the same random numbers.
    """
    return of_replications(np.asarray(values, dtype=float) - np.asarray(baseline, dtype=float), confidence)


def of_share(num_successes: int, num_trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval of a share.

    Source: Wilson, Probable inference, the law of succession, and statistical inference, JASA 22, 1927.

    Returns
    -------
    tuple
        Lower and upper end; 0 and 1 without trials.
    """
    if num_trials == 0:
        return 0.0, 1.0
    z, share = NormalDist().inv_cdf(0.5 + confidence / 2), num_successes / num_trials
    scale = 1 + z * z / num_trials
    middle = (share + z * z / (2 * num_trials)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / num_trials + z * z / (4 * num_trials**2))
    return middle - half, middle + half
