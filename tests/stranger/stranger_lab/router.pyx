"""A compiled router of another package."""
from libc.stdint cimport int32_t, int64_t

from simulator.routing.base cimport Router


cdef class FirstOpen(Router):
    """The open replica with the lowest index gets every request."""

    API_VERSION = 1

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t i
        for i in range(self.num_replicas):
            if self.view.accounts[i].is_routable:
                return i
        return -1
