"""A table that grows by blocks of rows."""
import numpy as np

GROWTH = 4                      # of a table that is full


class GrowingTable:
    """Rows added in blocks, in one array.

    Parameters
    ----------
    dtype : of its rows; padding bytes of the rows are kept as they are.
    """

    def __init__(self, dtype: np.dtype):
        self._dtype = dtype
        self._raw = np.empty(0, f"V{dtype.itemsize}")       # raw rows are copied whole, records field by field
        self._length = 0

    def append(self, rows: np.ndarray) -> None:
        """Take contiguous rows; their memory may be used again."""
        end = self._length + len(rows)
        if end > len(self._raw):
            # Large steps: room that is not written to takes no memory, and the system gives new arrays large pages.
            grown = np.empty(max(GROWTH * len(self._raw), end), self._raw.dtype)
            grown[:self._length] = self._raw[:self._length]
            self._raw = grown
        self._raw[self._length:end] = rows.view(self._raw.dtype)
        self._length = end

    def rows(self) -> np.ndarray:
        """Return all rows."""
        return self._raw[:self._length].view(self._dtype)
