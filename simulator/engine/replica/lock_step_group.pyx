"""A clock that several replicas share: the interface for a replica."""


cdef class LockStepGroup:
    """Base of `LockStep`, which refers to the replicas that refer to it."""

    cdef int advance(self, int64_t until_ns, int64_t horizon_ns) except -1 nogil:
        return 0

    cdef int end_due(self) except -1 nogil:
        return 0

    cdef int arrive(self, int32_t index, int32_t row, int64_t now_ns) except -1 nogil:
        return 0

    cdef void forget(self, int32_t index, int32_t row) noexcept nogil:
        pass

    cdef void cut(self, int64_t now_ns) noexcept nogil:
        pass

    cdef void rouse(self, int64_t now_ns) noexcept nogil:
        pass

    cdef void expect(self, int64_t done_ns) noexcept nogil:
        pass

    cdef int halt(self, int64_t now_ns) except -1 nogil:
        return 0

    cdef int resume(self, int64_t since_ns, int64_t now_ns) except -1 nogil:
        return 0

    cdef void abandon(self) noexcept nogil:
        pass

    cdef int64_t num_begun(self, int64_t now_ns) noexcept nogil:
        return 0

    cdef int set_latency(self, LatencyModel latency) except -1:
        return 0
