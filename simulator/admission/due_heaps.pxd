"""Waiting rows by deadline: the next of each flow in O(1), any row removed in O(log rows)."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.core.pairing_heap cimport HeapNode


@cython.final
cdef class DueHeaps:
    cdef HeapNode* _nodes               # [row]
    cdef int32_t* _roots                # [flow] the row with the earliest deadline; -1: none waits
    cdef int32_t _num_flows

    # The row of a flow with the earliest deadline, of equal deadlines the first to come; -1: none waits.
    cdef inline int32_t first(self, int32_t flow) noexcept nogil:
        return self._roots[flow]

    # Add a row to a flow, or remove it; `place` grows with each row that comes.
    cdef void push(self, int32_t row, int32_t flow, int64_t due_ns, int64_t place) noexcept nogil
    cdef void remove(self, int32_t row, int32_t flow) noexcept nogil

    cdef int32_t _above(self, int32_t row) noexcept nogil

    # Raise RuntimeError if a row goes before the row above it, or the flows do not hold `size` rows.
    cdef int check(self, int64_t size) except -1 nogil
