"""Lengths drawn from buckets of a histogram, so that their counts by bucket and their sum are the measured ones."""
import numpy as np

from simulator.study.reconstruct.densities import POINTS, Density, limits
from simulator.study.reconstruct.windows import Lengths

HALVINGS = 60


def drawn_lengths(generator: np.random.Generator, found: Lengths, count: int, density: Density | None) -> np.ndarray:
    """Return the lengths of `count` requests, at least 1 token each.

    They are drawn within buckets, then scaled there until the sum is the measured one. Without buckets lengths are
    exponential.

    density : of lengths within buckets; None: there are none.
    """
    if count == 0:
        return np.zeros(0, np.int64)
    if density is None or not np.any(found.counts):
        mean = max(found.total / count, 1.0)
        drawn = np.maximum(generator.exponential(mean, count), 1.0)
        return fitted(generator, drawn, (np.ones(count), np.full(count, np.inf)), found.total)
    low, high = limits(found.bounds)
    place = np.repeat(np.arange(len(found.counts)), found.counts)
    if len(place) != count:             # a scrape between two updates
        place = generator.choice(place, count, replace=len(place) < count)
    share = found.total * count / max(int(found.counts.sum()), 1)
    at = generator.random(count) * POINTS
    step = at.astype(np.int64)
    rows = density.quantiles
    drawn = rows[place, step] + (at - step) * (rows[place, step + 1] - rows[place, step])
    return generator.permutation(fitted(generator, drawn, (low[place], high[place]), share))


def fitted(generator: np.random.Generator, drawn: np.ndarray, bounds: tuple[np.ndarray, np.ndarray],
           total: float) -> np.ndarray:
    """Return lengths scaled by one factor, within bounds, to a sum; whole numbers.

    A sum that the bounds do not allow gives the nearest one.
    """
    low, high = bounds
    below, above = 1e-3, 1e3
    for _ in range(HALVINGS):
        factor = np.sqrt(below * above)
        if np.clip(drawn * factor, low, high).sum() < total:
            below = factor
        else:
            above = factor
    whole = np.floor(np.clip(drawn * above, low, high))
    missing = int(min(max(round(total - whole.sum()), 0), len(whole)))
    order = generator.permutation(np.flatnonzero(whole < high))[:missing]
    whole[order] += 1
    return whole.astype(np.int64)
