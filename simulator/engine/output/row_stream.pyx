"""Rows of one table, passed from the engine to their receiver in chunks."""
from libc.string cimport memset
cimport cython

import numpy as np

CHUNK_ROWS = 1 << 14            # passed on at once


@cython.final
cdef class RowStream:
    """Collect rows in chunks and pass them on.

    dtype : of a row; with the layout of the C struct that is written.
    take : called as `take(rows)`; their memory is reused afterwards.
    """

    def __init__(self, dtype, take, int64_t chunk_rows=CHUNK_ROWS):
        cdef int8_t[::1] view
        self._take, self._room, self._row_bytes = take, chunk_rows, dtype.itemsize
        self._rows = np.zeros(chunk_rows, dtype)
        view = self._rows.view(np.int8)
        self._bytes = &view[0]

    cdef void* add(self) except NULL nogil:
        cdef int8_t* row
        if self._held == self._room:
            with gil:
                self.flush()
        row = self._bytes + self._held * self._row_bytes
        memset(row, 0, self._row_bytes)
        self._held += 1
        self.total += 1
        return row

    def flush(self):
        """Pass on the rows held."""
        if self._held:
            self._take(self._rows[:self._held])
        self._held = 0
