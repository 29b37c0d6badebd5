"""A router before replicas with several ranks: the front end of a replica chooses the rank."""


cdef class RankRouter(Router):
    """Any such router; a subclass overrides all methods."""

    cdef int promise(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return 0

    cdef int redeem(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return 0

    cdef int32_t choose_rank(self, int32_t row, int32_t replica, int64_t now_ns) except -2 nogil:
        return replica
