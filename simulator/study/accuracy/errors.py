"""Errors of predictions against measurements."""
from typing import NamedTuple

import numpy as np


class Errors(NamedTuple):
    """Errors of pairs; shares, not per cent; None: not defined for the pairs.

    mape, median_ape : mean and median of |predicted / measured - 1|.
    bias : mean of predicted / measured - 1.
    mean_error : of the mean, predicted over measured, less 1.
    r : Pearson's correlation; None below three pairs, or where one side is constant.
    """

    mape: float
    median_ape: float
    bias: float
    mean_error: float
    r: float | None


class Spread(NamedTuple):
    """Errors of percentiles; `ks`: distance of the two distributions, 0 .. 1."""

    p50: float
    p90: float
    p99: float
    ks: float


def errors_of(predicted: np.ndarray, measured: np.ndarray) -> Errors:
    """Return the errors of pairs; measured values are above 0."""
    relative = predicted / measured - 1.0
    apes = np.abs(relative)
    return Errors(float(apes.mean()), float(np.median(apes)), float(relative.mean()),
                  float(predicted.mean() / measured.mean() - 1.0), _correlation(predicted, measured))


def spread_of(predicted: np.ndarray, measured: np.ndarray) -> Spread:
    """Return the errors of percentiles, and the distance of the distributions."""
    ours, theirs = (np.percentile(values, (50, 90, 99)) for values in (predicted, measured))
    return Spread(*map(float, ours / theirs - 1.0), ks_distance(predicted, measured))


def ks_distance(left: np.ndarray, right: np.ndarray) -> float:
    """Return the largest distance of two empirical distribution functions.

    Kolmogorov and Smirnov's statistic of two samples: sup |F(x) - G(x)|, taken at all points of both.
    """
    left, right = np.sort(left), np.sort(right)
    points = np.concatenate([left, right])
    shares = [np.searchsorted(side, points, side="right") / len(side) for side in (left, right)]
    return float(np.abs(shares[0] - shares[1]).max())


def _correlation(predicted: np.ndarray, measured: np.ndarray) -> float | None:
    if len(predicted) < 3 or np.ptp(predicted) == 0.0 or np.ptp(measured) == 0.0:
        return None
    return float(np.corrcoef(predicted, measured)[0, 1])
