"""Durations that were profiled on a grid, and bilinear interpolation between them."""
from libc.stdint cimport int32_t, int64_t
cimport cython


@cython.final
cdef class ProfileTable:
    cdef double* _rows              # [num_rows] grid, ascending
    cdef double* _columns           # [num_columns]
    cdef double* _values            # [row][column]; NaN: not profiled
    cdef int32_t _num_rows
    cdef int32_t _num_columns
    cdef object _owners

    # (0, 0) is 0; outside the grid, or beside a corner that was not profiled, NaN.
    cdef double predict(self, double row, double column) noexcept nogil


# Duration in ms of one decode iteration of `sequences` with `tokens` of text in total; NaN: not in the table.
cdef double decode_ms(ProfileTable tpot, int64_t sequences, int64_t tokens) noexcept nogil

# Time in ms to prefill `tokens` in chunks of `max_batched_tokens`, in iterations that also decode; NaN: not known.
cdef double chunked_prefill_ms(ProfileTable ttft, int64_t tokens, int64_t max_batched_tokens,
                               double decode_iteration_ms) noexcept nogil
