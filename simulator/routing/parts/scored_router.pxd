"""Base of routers that score all replicas for each request and take the best."""
from libc.stdint cimport int32_t

from simulator.routing.base cimport Router


# A subclass overrides `score`, or `route` as well.
cdef class ScoredRouter(Router):
    cdef double* preference             # [num_replicas] scratch: the scores of the last `route`

    # Any of the replicas with the largest preference, each equally likely; -1: all are -infinity.
    cdef int32_t pick_preferred(self) noexcept nogil
