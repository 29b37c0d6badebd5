"""Percentiles: ranks of the observations that bound them, and the number of observations needed.

The interval assumes nothing about the distribution: the number of observations below the p-quantile is binomial.
"""
import math
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

from simulator.study.statistics.student import beta_inc

MIN_TAIL = 50                   # observations above a percentile, by default: 5,000 in all for p99


class Ranks(NamedTuple):
    """Ranks of observations, from 1, between which a quantile lies with a probability."""

    low: int
    high: int
    coverage: float


@lru_cache(4096)                # runs of one study have equal numbers of requests
def ranks_of(share: float, count: int, confidence: float = 0.95) -> Ranks | None:
    """Return the ranks of the interval of a quantile.

    share : of observations below it, 0.99 for p99. count : observations.

    Returns
    -------
    Ranks
        None: the observations are too few.
    """
    alpha = (1 - confidence) / 2
    if count < least_observations(share, confidence):
        return None
    low, high = _quantile(alpha, count, share), _quantile(1 - alpha, count, share)

    def coverage():
        return _cdf(high - 1, count, share) - _cdf(low - 1, count, share)

    while coverage() < confidence and (high < count or low > 1):
        high, low = min(high + 1, count), (low if high < count else max(low - 1, 1))
    return Ranks(low, high, coverage())


def least_observations(share: float, confidence: float = 0.95) -> int:
    """Return the least number of observations for an interval between extremes."""
    tail = (1 - confidence) / 2
    return math.ceil(math.log(tail) / math.log(max(share, 1 - share)))


def is_thin(share: float, count: int, min_tail: float = MIN_TAIL) -> bool:
    """Return whether too few observations lie beyond a percentile to estimate it well."""
    return count * (1 - share) < min_tail - 1e-9 * min_tail         # 5,000 observations have 50 above p99


def _cdf(k: int, count: int, share: float) -> float:
    """Return the probability that at most `k` of `count` lie below the quantile."""
    if k < 0 or k >= count:
        return float(k >= count)
    return beta_inc(count - k, k + 1, 1 - share)


def _around(probability: float, count: int, share: float) -> tuple[int, int]:
    """Return numbers that enclose the quantile: two near that of the normal distribution, where these do."""
    middle = round(count * share + NormalDist().inv_cdf(probability) * math.sqrt(count * share * (1 - share)))
    low, high = max(middle - 3, -1), min(middle + 3, count)
    if low >= high or _cdf(low, count, share) >= probability or _cdf(high, count, share) < probability:
        return -1, count
    return low, high


def _quantile(probability: float, count: int, share: float) -> int:
    """Return the least k with P(at most k) >= probability."""
    low, high = _around(probability, count, share)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _cdf(middle, count, share) >= probability else (middle, high)
    return high
