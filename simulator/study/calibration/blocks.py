"""Blocks of time.

Whole blocks are held out or redrawn, since requests that are served together depend on each other.
"""
import numpy as np

BLOCK_S = 10.0


def blocks_of(times_s: np.ndarray) -> np.ndarray:
    """Return the number of the block of each time, int64, from 0."""
    return np.maximum(np.floor(times_s / BLOCK_S), 0.0).astype(np.int64)


def is_held_out(blocks: np.ndarray, count: int, fraction: float) -> np.ndarray:
    """Return a mask of times in held-out blocks, bool (n,).

    Of `count` blocks h = fraction x count are held out, to the nearest whole number, at least one and not all, evenly
    spread: block b where (b + 1) h / count, rounded down, increases. They do not depend on other data sets of the
    study.
    """
    held = min(max(int(fraction * count + 0.5), 1), count - 1)
    return (blocks + 1) * held // count > blocks * held // count


def moving_rows(draw: np.random.Generator, count: int, length: int) -> np.ndarray:
    """Return `count` rows drawn in blocks of `length` that begin at any row.

    The moving-block bootstrap (Künsch 1989, Liu and Singh 1992).
    """
    length = min(length, count)
    begins = draw.integers(0, count - length + 1, -(-count // length))
    return (begins[:, None] + np.arange(length)).ravel()[:count]


def moving_spans(draw: np.random.Generator, times_s: np.ndarray) -> np.ndarray:
    """Return equally many rows, drawn in blocks of 10 s that begin at any time.

    times_s : ascending.
    """
    rows: list[np.ndarray] = []
    missing = len(times_s)
    while missing > 0:
        begin = int(draw.integers(0, len(times_s)))
        end = int(np.searchsorted(times_s, times_s[begin] + BLOCK_S, side="left"))
        rows.append(np.arange(begin, min(end, begin + missing)))
        missing -= len(rows[-1])
    return np.concatenate(rows)
