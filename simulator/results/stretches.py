"""Sums over stretches of a sequence of unknown length, in fixed memory."""
import numpy as np

MOST_STRETCHES = 1 << 13


class Stretches:
    """Sums of columns over equal stretches.

    Stretches grow in powers of two with the sequence. Sums between two places are exact where both are ends of
    stretches, always up to `MOST_STRETCHES` values; else a stretch is taken to be even.

    count : values so far.

    Parameters
    ----------
    num_columns : of each value.
    """

    def __init__(self, num_columns: int):
        self.count = 0
        self._sums, self._length = np.zeros((MOST_STRETCHES, num_columns)), 1

    def add(self, *columns: np.ndarray) -> None:
        """Add values, a column of the sequence each."""
        values = np.column_stack(columns).astype(np.float64)
        if not len(values):
            return
        while self.count + len(values) > MOST_STRETCHES * self._length:
            pairs = self._sums.reshape(MOST_STRETCHES // 2, 2, -1).sum(axis=1)
            self._sums[:len(pairs)], self._sums[len(pairs):] = pairs, 0
            self._length *= 2
        stretches = (self.count + np.arange(len(values))) // self._length
        begins = np.flatnonzero(np.append(True, stretches[1:] != stretches[:-1]))
        self._sums[stretches[begins]] += np.add.reduceat(values, begins, axis=0)
        self.count += len(values)

    def between(self, places: np.ndarray) -> np.ndarray:
        """Return the sums between ascending places from 0 to `count`.

        float64 (len(places) - 1, columns).
        """
        sums = np.vstack([np.zeros(self._sums.shape[1]), np.cumsum(self._sums, axis=0)])
        ends = np.minimum(np.arange(MOST_STRETCHES + 1) * self._length, self.count)
        last = -(-self.count // self._length)
        return np.diff(np.column_stack([np.interp(places, ends[:last + 1], column[:last + 1]) for column in sums.T]),
                       axis=0)
