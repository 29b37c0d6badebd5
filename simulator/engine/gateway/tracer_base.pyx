"""Base of the receivers of routing decisions."""


cdef class Tracer:
    """Base of classes that record routing decisions."""

    cdef int decided(self, Router router, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return 0
