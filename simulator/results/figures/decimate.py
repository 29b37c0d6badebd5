"""Reduction of points to the number that a picture needs."""
import numpy as np

NUM_COLUMNS = 1000          # of pixels; two points each
NUM_QUANTILES = 1001


def scattered(x: np.ndarray, y: np.ndarray, num_columns: int = NUM_COLUMNS) -> tuple[np.ndarray, np.ndarray]:
    """Return a cloud, or of many points the least and the greatest of each column.

    Parameters
    ----------
    x : (n,), ascending.
    y : (n,)

    Returns
    -------
    tuple
        At most `2 * num_columns` points; the points of a column are drawn at its middle.
    """
    if len(x) <= 2 * num_columns:
        return x, y
    low, high = float(x[0]), float(x[-1])
    firsts = np.concatenate(([0], np.flatnonzero(x[1:] != x[:-1]) + 1))         # of each value
    filled, first = np.unique(column_of(x[firsts], low, high, num_columns), return_index=True)
    starts = firsts[first]
    both = np.empty(2 * len(filled), np.float64)
    both[0::2], both[1::2] = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
    return np.repeat(middles(filled, low, high, num_columns), 2), both


def column_of(x: np.ndarray, low: float, high: float, num_columns: int) -> np.ndarray:
    """Return the column of each point of a cloud that reaches from `low` to `high`."""
    width = (high - low) / num_columns or 1.0
    return np.minimum((x - low) / width, num_columns - 1).astype(np.int64)


def middles(columns: np.ndarray, low: float, high: float, num_columns: int) -> np.ndarray:
    """Return the middles of columns of a cloud that reaches from `low` to `high`."""
    return low + (columns + 0.5) * ((high - low) / num_columns or 1.0)


def quantiles(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a distribution function, at `NUM_QUANTILES` shares or at every sample.

    Parameters
    ----------
    samples : float64 (n,), not empty.

    Returns
    -------
    tuple
        Values, rising, and the shares from 0 to 1, between which percentiles interpolate linearly as NumPy's do.
    """
    ordered = np.sort(samples)
    shares, low, high = quantile_ranks(len(ordered))
    return between(ordered[low], ordered[high], shares, len(ordered)), shares


def quantile_ranks(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the shares that a distribution function of this many samples has.

    And the ranks on both sides of each.
    """
    shares = np.linspace(0.0, 1.0, min(NUM_QUANTILES, count) if count > 1 else 2)
    low = np.floor(shares * (count - 1)).astype(np.int64)
    return shares, low, np.minimum(low + 1, count - 1)


def between(low: np.ndarray, high: np.ndarray, shares: np.ndarray, count: int) -> np.ndarray:
    """Return the values at shares, between the samples at the ranks on both sides."""
    rank = shares * (count - 1)
    return low + (high - low) * (rank - np.floor(rank))
