"""Duration of a prefill iteration, learned during the run, and the progress since a status."""
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
