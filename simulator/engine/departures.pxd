"""Requests that have left their replicas, until the cluster hears of it."""
from libc.stdint cimport int32_t, int64_t
cimport cython


@cython.final
cdef class Departures:
    cdef int32_t* _next         # [row] the one that left after it; NULL: nobody wants to know
    cdef int32_t first          # -1: none
    cdef int32_t _last
    cdef int64_t _num_requests

    cdef inline void add(self, int32_t row) noexcept nogil:
        if self._next == NULL:
            return
        self._next[row] = -1
        if self.first < 0:
            self.first = row
        else:
            self._next[self._last] = row
        self._last = row

    # Take out the row that left first; there must be one.
    cdef inline int32_t take(self) noexcept nogil:
        cdef int32_t row = self.first
        self.first = self._next[row]
        return row
