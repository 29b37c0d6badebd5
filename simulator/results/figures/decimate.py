"""So many points that a picture needs, and no more."""
import numpy as np

NUM_COLUMNS = 1000          # of pixels; two points each
NUM_QUANTILES = 1001


def decimated(x: np.ndarray, y: np.ndarray, num_columns: int = NUM_COLUMNS) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y, or of many the least and the greatest y of each pixel column.

    No extreme is lost: whoever sees the picture sees every peak. At most `2 * num_columns` points come back.

    Parameters
    ----------
    x : (n,), rising.
    y : (n,)
    """
    if len(x) <= 2 * num_columns:
        return x, y
    edges = np.linspace(x[0], x[-1], num_columns + 1)[:-1]
    starts = np.unique(np.searchsorted(x, edges, "left"))
    starts = starts[starts < len(x)]
    both = np.empty(2 * len(starts), np.float64)
    both[0::2], both[1::2] = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
    return np.repeat(x[starts], 2), both


def scattered(x: np.ndarray, y: np.ndarray, num_columns: int = NUM_COLUMNS) -> tuple[np.ndarray, np.ndarray]:
    """Return a cloud, or of many points the least and the greatest of each column.

    Parameters
    ----------
    x : (n,), ascending.
    y : (n,)

    Returns
    -------
    tuple
        At most `2 * num_columns` points; those of a column stand at its middle.
    """
    if len(x) <= 2 * num_columns:
        return x, y
    low, high = float(x[0]), float(x[-1])
    width = (high - low) / num_columns or 1.0
    firsts = np.concatenate(([0], np.flatnonzero(x[1:] != x[:-1]) + 1))         # of each value
    column = np.minimum((x[firsts] - low) / width, num_columns - 1).astype(np.int64)
    filled, first = np.unique(column, return_index=True)
    starts = firsts[first]
    both = np.empty(2 * len(filled), np.float64)
    both[0::2], both[1::2] = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
    return np.repeat(low + (filled + 0.5) * width, 2), both


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
    shares = np.linspace(0.0, 1.0, min(NUM_QUANTILES, len(ordered)) if len(ordered) > 1 else 2)
    rank = shares * (len(ordered) - 1)
    low = np.floor(rank).astype(np.int64)
    high = np.minimum(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low), shares
