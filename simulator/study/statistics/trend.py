"""Trend of the backlog: a steady state, or a queue that grows as long as requests arrive.

Two signals must rise: requests in the system, and the time to the first token. Two with significant slopes are
GuideLLM's rule of over-saturation (vllm-project/guidellm, docs/guides/over_saturation_stopping.md).
"""
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from simulator.results.verdicts import GROWING, LEAST_REQUESTS, STABLE, TOO_SHORT
from simulator.study.statistics.student import t_quantile

NUM_BATCHES, NUM_DROPPED = 20, 2
SIGNIFICANCE = 0.01             # one-sided
FIRST, SHARE_OF_FIRST, GENERATIONS = 20, 0.9, 2     # of the ramp: one of so many requests
LEAST_RISE = 0.2                # of the mean, over all batches
OLD_WORDS = {"unknown": TOO_SHORT}      # in lines of older versions


def backlog(arrived: np.ndarray, left: np.ndarray, first_token: np.ndarray) -> str:
    """Return STABLE, GROWING, or TOO_SHORT: too few requests for a trend.

    Requests of the ramp are left out: an empty system fills as long as its first requests stay, and slows down. If too
    few requests have a first token, the number of requests in the system decides alone.

    Parameters
    ----------
    arrived, left : times of requests in order of arrival, one unit; inf: it has not left.
    first_token : time of the first token, NaN: it got none.
    """
    if len(arrived) < LEAST_REQUESTS:
        return TOO_SHORT
    ramp = num_of_ramp(arrived, left)
    arrived, first_token = arrived[ramp:], first_token[ramp:]
    waits = first_token - arrived
    seen_waits = waits[~np.isnan(waits)]
    if len(seen_waits) >= LEAST_REQUESTS and not rises(seen_waits):
        return STABLE
    return GROWING if rises(in_system(arrived, left).astype(float) + ramp) else STABLE


def num_of_ramp(arrived: np.ndarray, left: np.ndarray) -> int:
    """Return how many requests arrived while the system filled: half at most.

    It fills for twice the time that nine of ten of the first twentieth of requests stay, once at the speed of small
    batches, once at that of the batches that these leave behind.
    """
    count = max(len(arrived) // FIRST, 1)
    stays = np.sort(left[:count] - arrived[:count])
    end = arrived[0] + GENERATIONS * stays[int(SHARE_OF_FIRST * (count - 1))]
    return int(max(min(np.searchsorted(arrived, end), len(arrived) // 2, len(arrived) - LEAST_REQUESTS), 0))


def backlog_of(extra: Mapping[str, Any]) -> str:
    """Return the trend of the queue in a stored run, its `Look.extra`."""
    return OLD_WORDS.get(extra["backlog"], extra["backlog"])


def in_system(arrived: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return the number of requests in the system at each arrival, int64 (n,)."""
    return np.arange(len(arrived)) - np.searchsorted(np.sort(left), arrived, side="right")


def rises(values: np.ndarray) -> bool:
    """Return whether batch means rise significantly, by a fifth of their mean or more.

    The first two of 20 are dropped; the slope of the others has a one-sided p below 0.01.
    """
    size = len(values) // NUM_BATCHES
    means = values[:size * NUM_BATCHES].reshape(NUM_BATCHES, size).mean(axis=1)[NUM_DROPPED:]
    count = len(means)
    numbers = np.arange(count) - (count - 1) / 2
    spread = float((numbers**2).sum())
    slope = float((numbers * means).sum()) / spread
    residuals = means - means.mean() - slope * numbers
    error = math.sqrt(float((residuals**2).sum()) / (count - 2) / spread)
    is_significant = slope > 0 and slope > t_quantile(1 - SIGNIFICANCE, count - 2) * error
    return is_significant and slope * count > LEAST_RISE * abs(float(means.mean()))
