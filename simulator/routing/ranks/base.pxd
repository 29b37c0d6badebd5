"""A router before replicas with several ranks: the front end of a replica chooses the rank."""
from libc.stdint cimport int32_t, int64_t

from simulator.routing.base cimport Router


cdef class RankRouter(Router):
    # A request is promised to the group of `replica`, and counts there, but at no rank; redeem: not any more.
    cdef int promise(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int redeem(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil

    # Choose a rank of the group of `replica` anew, as its front end does when the request comes there; -1: none.
    cdef int32_t choose_rank(self, int32_t row, int32_t replica, int64_t now_ns) except -2 nogil
