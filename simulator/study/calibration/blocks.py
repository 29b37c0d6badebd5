"""Blocks of time.

What is held out or drawn again is whole, since requests that are served together depend on each other.
"""
import numpy as np

BLOCK_S = 10.0


def blocks_of(times_s: np.ndarray) -> np.ndarray:
    """Return the number of the block of each time, int64, from 0."""
    return np.maximum(np.floor(times_s / BLOCK_S), 0.0).astype(np.int64)


def is_held_out(blocks: np.ndarray, fraction: float) -> np.ndarray:
    """Return which are in a block that is held out, bool (n,).

    Block b is where the count of those held out, (b + 1) x fraction rounded down, goes up: evenly spread, and the same
    whatever else is in the study.
    """
    return np.floor((blocks + 1) * fraction + 1e-9) > np.floor(blocks * fraction + 1e-9)


def moving_rows(draw: np.random.Generator, count: int, length: int) -> np.ndarray:
    """Return `count` rows drawn in blocks of `length` that begin anywhere.

    The moving-block bootstrap (Künsch 1989, Liu and Singh 1992).
    """
    length = min(length, count)
    begins = draw.integers(0, count - length + 1, -(-count // length))
    return (begins[:, None] + np.arange(length)).ravel()[:count]


def moving_spans(draw: np.random.Generator, times_s: np.ndarray) -> np.ndarray:
    """Return as many rows as there are, drawn in blocks of 10 s that begin at any.

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
