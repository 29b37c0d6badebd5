"""Waiting requests by size, and the one with the least slack."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.core.index_list cimport IndexLinks, IndexList


cdef struct Due:                # a waiting row
    int64_t by_ns               # latest instant at which it may be served within its target
    int64_t place               # grows with each row that comes


@cython.final
cdef class SizeFlows:
    cdef const int32_t* _size_of        # [row] size; and slack at its offer: target - expected latency
    cdef const int64_t* _slack_ns
    cdef object _owners                 # the arrays that these pointers borrow from
    cdef int32_t _num_sizes
    cdef int32_t _num_flows
    cdef Due* _dues                     # [row]
    cdef IndexLinks _links              # a row is in one flow at most
    cdef IndexList* _flows              # [line x num_sizes + size] rows that wait, in order of arrival

    # Add a row to a line, at its end; take it out.
    cdef void push(self, int32_t row, int32_t line, int64_t now_ns, int64_t place) noexcept nogil
    cdef void remove(self, int32_t row, int32_t line) noexcept nogil

    # Of the first rows of all sizes in a line, the one with the least slack; NONE: the line is empty.
    cdef int32_t first(self, int32_t line) noexcept nogil

    # The instant by which a waiting row must be served.
    cdef inline int64_t due_ns(self, int32_t row) noexcept nogil:
        return self._dues[row].by_ns

    # Raise RuntimeError if the links of a flow do not agree, or the flows do not hold `size` rows.
    cdef int check(self, int64_t size) except -1 nogil
