"""Densities of lengths within the buckets of a histogram.

The mean of all lengths is known exactly (sum and count), so that a law of two parameters has one left, which is fitted
to the counts by bucket. Where no law fits, the cumulative counts are interpolated smoothly.
"""
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from simulator.study.reconstruct.windows import Lengths

Cumulative = Callable[[np.ndarray], np.ndarray]
FITS = 0.02                     # largest distance of cumulative shares of a law that fits
WIDTHS = np.geomspace(0.05, 2.5, 120)       # of lognormal laws: sigma; of Weibull laws: 1 / shape
POINTS = 24                     # at which a bucket's density is inverted
WIDEST = 4.0                    # longest length of the last bucket, as a factor on its lower bound


class Density(NamedTuple):
    """Lengths within each bucket.

    quantiles : (buckets, POINTS + 1), ascending, of equal shares.
    """

    name: str
    quantiles: np.ndarray


def limits(bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the shortest and the longest length of each bucket."""
    low = np.r_[1.0, np.floor(bounds[:-1]) + 1.0]
    high = np.where(np.isfinite(bounds), np.floor(bounds), WIDEST * low)
    return low, np.maximum(high, low)


def densities_of(found: Sequence[Lengths]) -> list[Density]:
    """Return the densities that fit lengths by bucket; none: there are no histograms.

    found : of all windows.
    """
    known = [each for each in found if each.counts.size and each.counts.sum()]
    if not known:
        return []
    bounds, counts = known[0].bounds, sum(each.counts for each in known)
    shares = np.cumsum(counts) / counts.sum()
    mean = max(sum(each.total for each in known) / counts.sum(), 1.0)
    low, high = limits(bounds)
    made = []
    for name, law in (("lognormal", _lognormal), ("weibull", _weibull)):
        laws = [law(mean, width) for width in WIDTHS]
        distances = [float(np.abs(each(high) - shares).max()) for each in laws]
        best = int(np.argmin(distances))
        if distances[best] < FITS:
            made.append(Density(name, _quantiles(laws[best], low, high)))
    return made or [Density("smooth", _quantiles(_smooth(high, shares), low, high))]


def _lognormal(mean: float, sigma: float) -> Cumulative:
    middle, erf = math.log(mean) - sigma * sigma / 2, np.vectorize(math.erf, otypes=[float])
    return lambda lengths: (1 + erf((np.log(np.maximum(lengths, 1e-9)) - middle) / (sigma * math.sqrt(2)))) / 2


def _weibull(mean: float, width: float) -> Cumulative:
    scale = mean / math.gamma(1 + width)
    return lambda lengths: -np.expm1(-(np.maximum(lengths, 0.0) / scale) ** (1 / width))


def _smooth(high: np.ndarray, shares: np.ndarray) -> Cumulative:
    """Return monotone cubic interpolation over the logarithm of lengths.

    Source: Fritsch and Butland, SIAM J. Sci. Stat. Comput. 5 (1984), 300: slopes are harmonic means.
    """
    places, values = np.log(np.r_[0.5, high]), np.r_[0.0, shares]
    widths = np.diff(places)
    slopes = np.diff(values) / np.maximum(widths, 1e-12)
    inner = np.zeros(len(places))
    both = slopes[:-1] * slopes[1:] > 0
    inner[1:-1][both] = 2 * slopes[:-1][both] * slopes[1:][both] / (slopes[:-1] + slopes[1:])[both]

    def cumulative(lengths: np.ndarray) -> np.ndarray:
        at = np.log(np.maximum(lengths, 0.5))
        row = np.clip(np.searchsorted(places, at, side="right") - 1, 0, len(widths) - 1)
        t = np.clip((at - places[row]) / np.maximum(widths[row], 1e-12), 0.0, 1.0)
        rise = values[row + 1] - values[row]
        left, right = inner[row] * widths[row], inner[row + 1] * widths[row]
        return values[row] + t * (left + t * (3 * rise - 2 * left - right + t * (left + right - 2 * rise)))

    return cumulative


def _quantiles(cumulative: Cumulative, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the quantiles of a law within each bucket, by interpolation between many lengths."""
    rows = []
    for shortest, longest in zip(np.maximum(low - 1, 0.5), high, strict=True):
        lengths = np.geomspace(shortest, max(longest, shortest * 1.0001), 8 * POINTS)
        shares = np.maximum.accumulate(cumulative(lengths))
        if shares[-1] - shares[0] < 1e-9:               # the law has nothing there
            shares = np.linspace(0.0, 1.0, len(lengths))
        shares = (shares - shares[0]) / (shares[-1] - shares[0])
        rows.append(np.interp(np.linspace(0.0, 1.0, POINTS + 1), shares, lengths))
    return np.array(rows)
