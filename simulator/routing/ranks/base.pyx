"""A router before replicas with several ranks: the front end of a replica chooses the rank."""


cdef class RankRouter(Router):
    """Any such router; a subclass overrides `choose_rank`."""

    cdef int32_t choose_rank(self, int32_t row, int32_t replica, int64_t now_ns) except -2 nogil:
        return replica
