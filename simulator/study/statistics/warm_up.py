"""The end of the warm-up of a run, and the interval of the mean of the rest.

Observations are in order of arrival: in order of completion the slow ones would be missing at the end.
"""
import math
from typing import NamedTuple

import numpy as np

from simulator.study.statistics.student import t_quantile

BATCH = 5                       # observations of a batch mean of MSER-5
NUM_BATCHES = 20
MOST_CORRELATION = 0.2          # lag 1, of batch means


class Settled(NamedTuple):
    """The warm-up to cut.

    num_cut : observations. is_found : False: the run settles only half-way through, and is too short.
    """

    num_cut: int
    is_found: bool


class BatchMeans(NamedTuple):
    """The mean of one run from its batches.

    half_width : of the interval at 95 %; NaN where there are too few. lag_1 : correlation of neighbouring batches.
    """

    mean: float
    half_width: float
    lag_1: float

    @property
    def is_correlated(self) -> bool:
        """Return whether batches depend on each other, so that the interval is too narrow."""
        return self.lag_1 > MOST_CORRELATION


def mser_5(values: np.ndarray) -> Settled:
    """Return the number of observations to cut.

    For k means of 5 observations, MSER(d) = sum over j >= d of (z_j - their mean)^2 / (k - d)^2, d <= k / 2; the
    least wins, the first of equals.

    Source: White, An effective truncation heuristic for bias reduction in simulation output, Simulation 69, 1997;
    Spratt, An evaluation of contemporary heuristics for the startup problem, 1998.
    """
    k = len(values) // BATCH
    if k < 2:
        return Settled(0, False)
    means = np.asarray(values[:k * BATCH], dtype=float).reshape(k, BATCH).mean(axis=1)
    means = means - means.mean()                # sums of squares lose less
    left = k - np.arange(k // 2 + 1)
    sums = np.cumsum(means[::-1])[::-1][:k // 2 + 1]
    squares = np.cumsum((means**2)[::-1])[::-1][:k // 2 + 1]
    errors = np.maximum(squares - sums**2 / left, 0.0)
    errors[errors < 1e-12 * max(float(squares[0]), 1e-300)] = 0.0      # rounding errors of zeros
    best = int(np.argmin(errors / left.astype(float)**2))
    return Settled(best * BATCH, best < k // 2)


def batch_means(values: np.ndarray, num_batches: int = NUM_BATCHES, confidence: float = 0.95) -> BatchMeans:
    """Return the statistics of equal batches, without a surplus at the beginning."""
    values = np.asarray(values, dtype=float)
    size = len(values) // num_batches
    if size == 0:
        return BatchMeans(float(values.mean()) if len(values) else math.nan, math.nan, math.nan)
    means = values[len(values) - size * num_batches:].reshape(num_batches, size).mean(axis=1)
    return of_batches(means, confidence)


def of_batches(means: np.ndarray, confidence: float = 0.95) -> BatchMeans:
    """Return the statistics of batch means: t(1 - alpha / 2, n - 1) s / sqrt(n)."""
    count, deviations = len(means), means - means.mean()
    total = float((deviations**2).sum())
    half = t_quantile(0.5 + confidence / 2, count - 1) * math.sqrt(total / (count - 1) / count)
    lag_1 = float((deviations[1:] * deviations[:-1]).sum()) / total if total > 0 else 0.0
    return BatchMeans(float(means.mean()), half, lag_1)
