"""A table of results.h5 that bypasses HDF5's filters, a chunk at a time, packed as they would pack it."""
import h5py
import numpy as np

from simulator.core.packed_rows import RowPacker

FILTERS = {"shuffle": True, "compression": "gzip", "compression_opts": 1, "fletcher32": True}
CHUNK_BYTES = 1 << 20           # HDF5 keeps a chunk of this size in memory to read a few rows
CHUNKS_AHEAD = 16               # growth of a table: each step takes 20 us
MOST_CHUNK_ROWS = 1 << 15       # of numbers alone: 256 KiB


def chunk_rows(dtype: np.dtype, length: int | None) -> int:
    """Return the rows of a chunk; `length`: of the table, None: it grows."""
    rows = MOST_CHUNK_ROWS
    while rows > 1 and rows * dtype.itemsize > CHUNK_BYTES:
        rows //= 2
    return rows if length is None else max(1, min(length, rows))


class PackedTable:
    """A writer of rows into a dataset.

    Parameters
    ----------
    dataset : of one dimension and with `FILTERS`; it grows as needed.
    dtype : of the rows that are written, with the memory layout of the dataset.
    """

    def __init__(self, dataset: h5py.Dataset, dtype: np.dtype):
        self._dataset = dataset
        self._raw = np.dtype(("V", dtype.itemsize))     # copied as plain memory: 1.4 ns a row, field by field 25 ns
        self._packer = RowPacker(dataset.chunks[0], dtype)
        self._held = np.empty(dataset.chunks[0], self._raw)
        self._num_held = self._num_written = 0
        self._extent = len(dataset)

    def append(self, rows: np.ndarray) -> None:
        """Take contiguous rows; their memory may be used again."""
        rows, size = rows.view(self._raw), len(self._held)
        taken = 0
        if self._num_held:
            taken = min(len(rows), size - self._num_held)
            self._hold(rows[:taken])
            if self._num_held == size:
                self._write_held()
        while len(rows) - taken >= size:
            self._write(rows[taken:taken + size])
            taken += size
        self._hold(rows[taken:])

    def flush(self) -> None:
        """Write the rows held back; no rows may follow."""
        self._write_held()
        if self._extent != self._num_written:
            self._dataset.resize((self._num_written,))

    def _write_held(self) -> None:
        if self._num_held:
            self._write(self._held[:self._num_held])
            self._num_held = 0

    def _hold(self, rows: np.ndarray) -> None:
        self._held[self._num_held:self._num_held + len(rows)] = rows
        self._num_held += len(rows)

    def _write(self, rows: np.ndarray) -> None:
        first = self._num_written
        self._num_written += len(rows)
        if self._extent < self._num_written:
            self._extent = first + CHUNKS_AHEAD * len(self._held)
            self._dataset.resize((self._extent,))
        self._dataset.id.write_direct_chunk((first,), self._packer.pack(rows))
