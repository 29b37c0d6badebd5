"""How many drafts of a verify step are accepted."""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython


@cython.final
cdef class Acceptance:
    cdef int32_t* _cycle            # accepted drafts of verify step i: _cycle[i % _length]; or
    cdef int32_t _length
    cdef double* _cumulative        # P(accepted <= i), i < _length
    cdef uint64_t _key              # of the random stream
    cdef int32_t* _steps            # [row] verify steps so far

    # Drafts of the next verify step of `row` that the target model would accept.
    cdef int32_t next(self, int32_t row) noexcept nogil
