"""Prefill legs at replicas that do either leg: their statuses do not separate prefill legs from decodes."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.request cimport Request
from simulator.routing.llumnix.dispatches cimport Dispatches


cdef struct LegCount:               # of a replica
    int64_t tokens                  # of prompts
    int32_t requests                # in the waiting queue, or running
    int32_t spare


@cython.final
cdef class LegCounts(Dispatches):
    cdef LegCount* seen             # [replica] as of the last `count`; pushed: as of the last `push`
    cdef LegCount* pushed
    cdef const Request* _legs       # [row] state of prefill legs
    cdef object _owner

    # A prefill leg was sent; it has left.
    cdef int sent(self, int32_t row, int32_t replica) except -1 nogil
    cdef void left(self, int32_t row, int32_t replica) noexcept nogil

    # Count the legs that replicas have now; keep that count for later readers.
    cdef void count(self) noexcept nogil
    cdef void push(self) noexcept nogil
