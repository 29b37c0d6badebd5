"""Base of routers that remember which prompts they sent where."""
from libc.stdint cimport int32_t

from simulator.routing.base cimport Router
from simulator.routing.parts.prefix_index cimport PrefixIndex


cdef class PrefixRouter(Router):
    cdef PrefixIndex index
    cdef int32_t* matched               # [num_replicas] blocks, of the request in question
    cdef double* preference             # [num_replicas] scratch: values that decide the choice, -infinity: excluded

    # Any of the replicas with the largest preference, each equally likely; -1: all are -infinity.
    cdef int32_t pick_preferred(self) noexcept nogil
