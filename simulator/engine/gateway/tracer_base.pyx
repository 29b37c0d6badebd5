"""Base of the receivers of routing decisions."""
from libc.stdint cimport int32_t, int64_t

from simulator.routing.base cimport Router


cdef class Tracer:
    """Base of classes that record routing decisions."""

    cdef int decided(self, Router router, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return 0
