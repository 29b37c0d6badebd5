"""Base of a stage that holds requests back between admission and router: the part that the gateway uses."""


cdef class Stage:
    """Base of stages; gateways and stages refer to each other."""

    cdef bint holds(self, int32_t row, int64_t now_ns) except -1 nogil:
        return False

    cdef int settle(self, int64_t now_ns) except -1 nogil:
        return 0

    cdef int forget(self, int32_t row, int64_t now_ns) except -1 nogil:
        return 0
