"""How many drafts of a verify step are accepted."""
from libc.stdint cimport int32_t, uint64_t
cimport cython


@cython.final
cdef class Acceptance:
    cdef int32_t* _cycle            # [_length] accepted drafts of verify step i: _cycle[i % _length]; NULL: drawn
    cdef int32_t _length            # entries of the cycle, or of the distribution
    cdef double* _cumulative        # [_length] P(accepted <= i); NULL: a cycle
    cdef uint64_t _key              # of the random stream
    cdef int32_t* _steps            # [row] verify steps so far

    # Drafts of the next verify step of `row` that the target model would accept.
    cdef int32_t next(self, int32_t row) noexcept nogil
