"""A router before replicas with several ranks: the front end of a replica chooses the rank."""
from libc.stdint cimport int32_t, int64_t

from simulator.routing.base cimport Router


cdef class RankRouter(Router):
    # Choose a rank of the group of `replica` anew, as its front end does when the request comes there; -1: none.
    cdef int32_t choose_rank(self, int32_t row, int32_t replica, int64_t now_ns) except -2 nogil
