"""A copy in host memory of the blocks that a replica fills: the base of all, which holds nothing."""
from libc.stdint cimport int64_t, uint64_t


cdef class Mirror(KVTier):
    """Base of mirrors; see mirror.pxd for the contract."""

    cdef bint holds(self, uint64_t hash) noexcept nogil:
        return False

    cdef void reload(self, uint64_t hash) noexcept nogil:
        pass

    cdef int keep(self, uint64_t hash) except -1 nogil:
        return 0

    cdef int64_t take_waiting_ns(self) noexcept nogil:
        return 0
