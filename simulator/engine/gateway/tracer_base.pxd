"""Base of the receivers of routing decisions."""
from libc.stdint cimport int32_t, int64_t

from simulator.routing.base cimport Router


cdef class Tracer:
    # The router chose `replica` for request `row`, -1: none; the decision has not taken effect yet.
    cdef int decided(self, Router router, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil
