"""Percentiles of numbers that are not held in memory: exact, from a few passes over them.

A pass counts values in bins. Between two passes all bins are forgotten but those that hold a wanted rank; the next pass
divides these, or, where they hold few values, keeps them. That is selection by radix (Knuth, The Art of Computer
Programming 3, 5.3.3) for many ranks at once.
"""
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import numpy as np

FIRST_SHIFT = 38                # bits of a float64 that the first bins leave out: 16,384 from a value to its double
MOST_KEPT = 1 << 20             # values: 8 MiB
MOST_BINS = 1 << 16             # of a later pass
WIDEST = 1 << 20                # up to this many entries a table is faster than sorting
ZERO = -1 << 63                 # bin of zeros alone
REST = np.int64((1 << 63) - 1)  # all bits but the sign

Block = TypeVar("Block")


class Looker(Protocol):
    """Processes a table block by block, in one or more passes, until `is_done`."""

    is_done: bool

    def take(self, block) -> None:
        """Process a block of rows."""

    def end_pass(self) -> None:
        """End a pass over all rows."""


def one_pass(blocks: Callable[[], Iterable[Block]], lookers: Sequence[Looker]) -> None:
    """Show all blocks to lookers once."""
    if lookers:
        for block in blocks():
            for looker in lookers:
                looker.take(block)
        for looker in lookers:
            looker.end_pass()


def in_passes(blocks: Callable[[], Iterable[Block]], *lookers: Looker) -> None:
    """Show all blocks to lookers, pass by pass, until each is done."""
    while wanting := [looker for looker in lookers if not looker.is_done]:
        one_pass(blocks, wanting)


class Ranked:
    """Values at ranks of all values that are shown.

    Its memory does not grow with their number, except for bins of the first pass: one for each step of
    1 / 16,384 between values and their doubles that holds any value.

    count : of the values.
    is_done : no further pass is needed.

    Parameters
    ----------
    ranks_of : returns the requested ranks for a count: 0 is the least.
    """

    def __init__(self, ranks_of: Callable[[int], np.ndarray]):
        self._ranks_of = ranks_of
        self.count, self.is_done = 0, False
        self._bins = Runs()
        self._kept: list[np.ndarray] | None = None      # None: bins are counted in this pass
        self._ranks = self._found = None               # ranks, and keys at them
        self._open = self._within = None                # places in both that are not found yet; ranks in the bins
        self._lows = self._highs = self._widths = None  # of the bins that a pass divides; None: it is the first pass
        self._is_near: _Table | None = None             # first bins that hold any requested rank; None: not known
        self._per_bin = 1                               # bins that each open bin is divided into

    def take(self, values: np.ndarray) -> None:
        """Process values, float64, without NaN."""
        keys = _keys(values)
        if self._lows is None:
            self.count += len(keys)
            bins, counts = tallied(keys[keys != 0] >> FIRST_SHIFT)
            lows = np.where(bins == 0, 1, bins << FIRST_SHIFT)
            self._bins.add(bins, counts, lows, ((bins + 1) << FIRST_SHIFT) - 1)
            if num_zeros := len(keys) - int(counts.sum()):      # many a latency is 0: no need to look closer
                self._bins.add(*np.array((ZERO, num_zeros, 0, 0))[:, None])
            return
        if self._is_near is not None:
            keys = keys[self._is_near[keys >> FIRST_SHIFT]]
        keys = np.sort(keys)
        which, inside = _inside(keys, self._lows, self._highs)
        keys = keys[inside]
        if self._kept is not None:
            self._kept.append(keys)
        else:
            bins = which * self._per_bin + (keys - self._lows[which]) // self._widths[which]
            begins = np.flatnonzero(np.diff(bins, prepend=-1))
            ends = np.append(begins[1:], len(bins))[:len(begins)]
            self._bins.add(bins[begins], ends - begins, keys[begins], keys[ends - 1])

    def end_pass(self) -> None:
        """Choose the bins that the next pass divides or keeps."""
        if not self.count:
            self.is_done = True
            return
        if self._lows is None:
            self._within = self._ranks = np.unique(self._ranks_of(self.count))
            self._found = np.zeros(len(self._ranks), np.int64)
            self._open = np.arange(len(self._ranks))
        if self._kept is not None:
            self._found[self._open] = np.sort(np.concatenate(self._kept))[self._within]
            self._open, self._kept = self._open[:0], None
        else:
            self._narrow()
        self.is_done = not len(self._open)

    def at(self, ranks: np.ndarray) -> np.ndarray:
        """Return the values at some of the requested ranks; to be called when done."""
        return _values(self._found[np.searchsorted(self._ranks, ranks)])

    def _narrow(self) -> None:
        """Keep the bins that hold a wanted rank; a bin of equal values is a result."""
        counts, lows, highs = self._bins.joined()[1:]
        ends = np.cumsum(counts)
        place = np.searchsorted(ends, self._within, "right")
        is_one = lows[place] == highs[place]
        self._found[self._open[is_one]] = lows[place[is_one]]
        self._open, place = self._open[~is_one], place[~is_one]
        chosen, group = np.unique(place, return_inverse=True)
        begins = np.cumsum(counts[chosen]) - counts[chosen]
        self._within = self._within[~is_one] - (ends - counts)[place] + begins[group]
        is_first, self._lows, self._highs = self._lows is None, lows[chosen], highs[chosen]
        self._bins = Runs()
        if is_first and len(chosen):
            self._is_near = _Table.of(self._lows >> FIRST_SHIFT)
        if counts[chosen].sum() <= MOST_KEPT:
            self._kept = []
        else:
            self._per_bin = max(2, MOST_BINS // len(chosen))
            self._widths = (self._highs - self._lows) // self._per_bin + 1


class Runs:
    """Counts by bin, with least and greatest keys; empty bins take no memory."""

    FEW = 1 << 15       # new runs, or as many as bins, are joined at once

    def __init__(self):
        self._parts = [(np.empty(0, np.int64),) * 4]
        self._num_held = self._num_new = 0

    def add(self, bins: np.ndarray, counts: np.ndarray, lows: np.ndarray, highs: np.ndarray) -> None:
        """Count keys; each bin occurs once."""
        self._parts.append((bins, counts, lows, highs))
        self._num_new += len(bins)
        if self._num_new > max(self._num_held, self.FEW):
            self.joined()

    def joined(self) -> tuple[np.ndarray, ...]:
        """Return bins in the order of their keys; counts, least, greatest keys."""
        bins, counts, lows, highs = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        order = np.argsort(lows, kind="stable")
        bins, begins = bins[order], np.empty(0, np.int64)
        if len(bins):
            begins = np.flatnonzero(np.concatenate(([True], bins[1:] != bins[:-1])))
            counts = np.add.reduceat(counts[order], begins)
            lows, highs = np.minimum.reduceat(lows[order], begins), np.maximum.reduceat(highs[order], begins)
        self._parts = [(bins[begins], counts, lows, highs)]
        self._num_held, self._num_new = len(begins), 0
        return self._parts[0]


class _Table:
    """A table of chosen whole numbers that are near each other."""

    def __init__(self, low: int, is_chosen: np.ndarray):
        self._low, self._is_chosen = low, is_chosen

    @classmethod
    def of(cls, numbers: np.ndarray) -> "_Table | None":
        """Choose numbers, ascending; None: they are too far from each other."""
        low, high = int(numbers[0]) - 1, int(numbers[-1]) + 1       # both ends represent all numbers beyond
        if high - low >= 4 * WIDEST:
            return None
        is_chosen = np.zeros(high - low + 1, bool)
        is_chosen[numbers - low] = True
        return cls(low, is_chosen)

    def __getitem__(self, numbers: np.ndarray) -> np.ndarray:
        return self._is_chosen[np.clip(numbers - self._low, 0, len(self._is_chosen) - 1)]


def tallied(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct numbers, ascending, and the count of each, int64."""
    if not len(numbers):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low >= WIDEST:
        return np.unique(numbers.astype(np.int64), return_counts=True)
    counts = np.bincount(numbers - low)
    found = np.flatnonzero(counts)
    return found + low, counts[found]


def _inside(keys: np.ndarray, lows: np.ndarray, highs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for keys in any of the intervals, which interval that is, and their places; keys are ascending."""
    begins, ends = np.searchsorted(keys, lows, "left"), np.searchsorted(keys, highs, "right")
    lengths = ends - begins
    which = np.repeat(np.arange(len(lows)), lengths)
    return which, np.arange(len(which)) + (begins - (np.cumsum(lengths) - lengths))[which]


def _keys(values: np.ndarray) -> np.ndarray:
    """Return integers in the order of the values (IEEE 754: those of positive numbers are their bits)."""
    bits = np.ascontiguousarray(values, np.float64).view(np.int64)
    return np.where(bits < 0, bits ^ REST, bits) if len(bits) and bits.min() < 0 else bits


def _values(keys: np.ndarray) -> np.ndarray:
    return np.where(keys < 0, keys ^ REST, keys).view(np.float64)


def middle(count: int) -> np.ndarray:
    """Return the ranks of the median."""
    return np.array(((count - 1) // 2, count // 2))


def median(ranked: Ranked) -> float:
    """Return the median, as NumPy computes it."""
    low, high = ranked.at(middle(ranked.count))
    return float((low + high) / 2)


class Counted:
    """Counts of whole numbers; memory grows with the number of different ones."""

    def __init__(self):
        self._runs = Runs()

    def take(self, numbers: np.ndarray) -> None:
        """Count numbers."""
        values, counts = tallied(numbers)
        self._runs.add(values, counts, values, values)

    def found(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers, ascending, and the count of each."""
        return self._runs.joined()[:2]


def percentiles_of(values: np.ndarray, counts: np.ndarray, percents: tuple[float, ...]) -> np.ndarray:
    """Return percentiles of values with counts.

    As NumPy computes them by its method `linear`.

    values : ascending, not empty.
    """
    ends = np.cumsum(counts)
    rank = np.array(percents) / 100 * (ends[-1] - 1)
    floor, share = np.floor(rank).astype(np.int64), rank - np.floor(rank)
    low, high = (values[np.searchsorted(ends, np.minimum(each, ends[-1] - 1), "right")] for each in (floor, floor + 1))
    return np.where(share < 0.5, low + (high - low) * share, high - (high - low) * (1 - share))
