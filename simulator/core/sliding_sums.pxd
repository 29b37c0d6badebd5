"""Sums over the last stretch of time, one for each of many keys."""
cimport cython
from libc.stdint cimport int32_t, int64_t


@cython.final
cdef class SlidingSums:
    cdef double* sums                   # [key] sum of additions in the last window, to within a slice
    cdef double* _slices                # [slice][key]
    cdef readonly int32_t num_keys
    cdef int64_t _slice_ns              # 0: the window has no end
    cdef int64_t _now                   # number of the slice that is being filled

    # Drop slices older than the window; return whether any was dropped.
    cdef bint advance(self, int64_t now_ns) noexcept nogil

    # Add to a key, after `advance`.
    cdef void add(self, int32_t key, double amount) noexcept nogil

    # Raise RuntimeError if a sum is not that of its slices, rounding aside.
    cpdef int check(self) except -1 nogil
