"""KV beyond the blocks of a replica: the base of all tiers, which holds nothing."""
from libc.stdint cimport int32_t, int64_t


cdef class KVTier:
    """Base of all tiers; see tier.pxd for the contract."""

    cdef External match(self, int32_t row, int64_t local_tokens) noexcept nogil:
        return External(0, False)

    cdef int64_t load(self, int32_t row, External found, int64_t now_ns) except -1 nogil:
        return now_ns

    cdef int64_t keep_until(self, int32_t row, int64_t now_ns) noexcept nogil:
        return -1

    cdef int64_t loaded_tokens(self, int32_t row) noexcept nogil:
        return 0
