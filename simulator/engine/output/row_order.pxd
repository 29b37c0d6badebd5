"""Rows of iterations in order of start, then of replica."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.tables cimport IterationRow


cdef struct Key:
    int64_t start_ns
    int32_t replica
    int32_t row                         # its index among the rows to sort


@cython.final
cdef class RowOrder:
    cdef Key* _keys                     # [_room]
    cdef Key* _merged                   # [_room]
    cdef int64_t* _begins               # [_room + 1] of the sorted stretches, and the end of the last
    cdef int64_t _room

    # Copy rows to `sorted_rows` in order; rows of one replica with equal start keep their order.
    cdef int sort(self, const IterationRow* rows, int64_t count, IterationRow* sorted_rows) except -1 nogil

    cdef int _take(self, const IterationRow* rows, int64_t count) except -1 nogil
    cdef int64_t _find_stretches(self, int64_t count) noexcept nogil
    cdef int64_t _merge_pairs(self, int64_t num_stretches) noexcept nogil
