"""The waiting queue of a replica: first come first served, or by priority."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.index_heap cimport IndexHeap
from simulator.domain.request cimport Demand, Request


@cython.final
cdef class WaitingQueue:
    cdef readonly int32_t size
    cdef bint _by_priority
    cdef const Request* _requests
    cdef const Demand* _demands
    cdef int32_t* _ring             # first come first served: rows from _head on, wrapping around
    cdef int32_t _head, _mask
    cdef IndexHeap _heap            # by priority, then arrival, then rank of the request id

    # Add a row at the back; `push_front` where a row goes back in front of the others (by priority there is no front).
    cdef int push(self, int32_t row) except -1 nogil
    cdef int push_front(self, int32_t row) except -1 nogil

    # The next row, still in the queue, or taken out of it; the queue must not be empty.
    cdef int32_t top(self) noexcept nogil
    cdef int32_t pop(self) noexcept nogil

    # Take a row out of the middle; -1 if it is not there. O(size).
    cdef int remove(self, int32_t row) noexcept nogil

    cdef int _grow(self) except -1 nogil
