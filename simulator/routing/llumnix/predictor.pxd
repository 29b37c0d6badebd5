"""Durations of iterations: learned during the run, or profiled on a grid."""
from libc.stdint cimport int32_t, int64_t
cimport cython


@cython.final
cdef class OnlinePredictor:
    cdef readonly int32_t num_samples
    cdef readonly bint is_fitted
    cdef int32_t _num_warmup
    cdef double _max_condition      # columns that add more than that are left out
    cdef double _r[3][4]            # QR factorisation of the rows (1, x, x**2 | y) so far: R and Q'y
    cdef double _coefficients[3]

    # Add an iteration of `tokens` that took `duration_ms`; this invalidates the fit.
    cdef void add(self, double tokens, double duration_ms) noexcept nogil

    # Fit if there are samples enough.
    cdef void fit(self) noexcept nogil

    cdef double predict_ms(self, double tokens) noexcept nogil

    # Prefill tokens computed within `age_ms` after a status that shows `backlog` tokens, `running` in an iteration that
    # has begun, in iterations of up to `max_batched_tokens`.
    cdef int64_t computed_tokens(self, int64_t backlog, int64_t running, int64_t max_batched_tokens,
                                 double age_ms) noexcept nogil


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
