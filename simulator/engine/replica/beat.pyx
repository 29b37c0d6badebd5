"""A clock that several replicas share: what a replica knows of it."""
from libc.stdint cimport int32_t, int64_t


cdef class Beat:
    """Base of `LockStep`, which knows the replicas that know it."""

    cdef int advance(self, int64_t until_ns, int64_t horizon_ns) except -1 nogil:
        return 0

    cdef int arrive(self, int32_t index, int32_t row, int64_t now_ns) except -1 nogil:
        return 0

    cdef void forget(self, int32_t index, int32_t row) noexcept nogil:
        pass

    cdef void cut(self, int64_t now_ns) noexcept nogil:
        pass

    cdef void rouse(self, int64_t now_ns) noexcept nogil:
        pass
