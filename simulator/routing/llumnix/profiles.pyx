"""Durations that were profiled on a grid, and bilinear interpolation between them."""
from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t
cimport cython

import numpy as np


@cython.final
cdef class ProfileTable:
    """A function of two numbers, known on a grid.

    samples : sequence of (row, column, value); of several at one place the last counts.
    """

    def __init__(self, samples):
        cdef double[::1] rows, columns
        cdef double[:, ::1] values
        table = np.asarray([tuple(each) for each in samples], float).reshape(-1, 3)
        row_array, row_of = np.unique(table[:, 0], return_inverse=True)
        column_array, column_of = np.unique(table[:, 1], return_inverse=True)
        value_array = np.full((len(row_array), len(column_array)), np.nan)
        for row, column, value in zip(row_of, column_of, table[:, 2], strict=True):
            value_array[row, column] = value
        self._owners = (row_array, column_array, value_array)
        self._num_rows, self._num_columns = value_array.shape
        if len(table):
            rows, columns, values = row_array, column_array, value_array
            self._rows, self._columns, self._values = &rows[0], &columns[0], &values[0, 0]

    cdef double predict(self, double row, double column) noexcept nogil:
        cdef int32_t low, high, left, right
        cdef double below, above
        if row == 0 and column == 0:
            return 0
        low, left = last_up_to(self._rows, self._num_rows, row), last_up_to(self._columns, self._num_columns, column)
        if low < 0 or left < 0:
            return NAN
        high = low if self._rows[low] == row else low + 1
        right = left if self._columns[left] == column else left + 1
        if high == self._num_rows or right == self._num_columns:
            return NAN
        below = between(self._values + <int64_t>low * self._num_columns, self._columns, left, right, column)
        if low == high:
            return below
        above = between(self._values + <int64_t>high * self._num_columns, self._columns, left, right, column)
        return below + (above - below) * (row - self._rows[low]) / (self._rows[high] - self._rows[low])

    def value(self, row, column):
        """Return the interpolated value; None: not in the table (for Python and tests)."""
        value = self.predict(row, column)
        return None if value != value else value

    def decode_ms(self, sequences, tokens):
        """Return `decode_ms` of this table; None: not in it (for Python and tests)."""
        value = decode_ms(self, sequences, tokens)
        return None if value != value else value

    def prefill_ms(self, tokens, max_batched_tokens, decode_iteration_ms):
        """Return `chunked_prefill_ms` of this table; None: not in it (for Python and tests)."""
        value = chunked_prefill_ms(self, tokens, max_batched_tokens, decode_iteration_ms)
        return None if value != value else value


cdef int32_t last_up_to(const double* grid, int32_t count, double x) noexcept nogil:
    """Return the index of the last grid point <= x; -1: none."""
    cdef int32_t low = -1, high = count, middle
    while high - low > 1:
        middle = (low + high) // 2
        if grid[middle] <= x:
            low = middle
        else:
            high = middle
    return low


cdef inline double between(const double* row, const double* columns, int32_t left, int32_t right,
                           double column) noexcept nogil:
    if left == right:
        return row[left]
    return row[left] + (row[right] - row[left]) * (column - columns[left]) / (columns[right] - columns[left])


cdef double decode_ms(ProfileTable tpot, int64_t sequences, int64_t tokens) noexcept nogil:
    # predict_utils.go:predictTpotLatency; 8 tokens per sequence are the least that is profiled
    if sequences <= 0 or tokens <= 0:
        return 0
    return tpot.predict(<double>sequences, max(8.0, <double>tokens / <double>sequences))


cdef double chunked_prefill_ms(ProfileTable ttft, int64_t tokens, int64_t max_batched_tokens,
                               double decode_iteration_ms) noexcept nogil:
    # predict_utils.go:predictTtftLatencyByChunkPrefill; the cost of a chunk does not depend on its position
    cdef int64_t whole, rest
    cdef double total_ms = decode_iteration_ms * 0      # NaN stays NaN
    if tokens <= 0:
        return total_ms
    whole = tokens // max_batched_tokens if max_batched_tokens > 0 else 0
    rest = tokens - whole * max_batched_tokens
    if whole > 0:
        total_ms += <double>whole * (ttft.predict(<double>max_batched_tokens, 0) + decode_iteration_ms)
    if rest > 0:
        total_ms += ttft.predict(<double>rest, 0) + decode_iteration_ms
    return total_ms
