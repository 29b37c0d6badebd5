"""Something beyond the blocks of a replica that keeps KV of texts under hashes: the base, which holds nothing."""
from libc.stdint cimport int64_t, uint64_t

from simulator.kv.cache_log cimport CacheLog


cdef class ChunkStore:
    """Base of what keeps chunks; see chunk_store.pxd for the contract."""

    cdef bint has(self, uint64_t hash) noexcept nogil:
        return False

    cdef int settle(self, int64_t now_ns) except -1 nogil:
        return 0

    def follow(self):
        """Return a CacheLog of hashes that come and go from now on; nothing is there yet. Several may follow it."""
        if self.hashes():
            raise ValueError("a store can be followed only from its beginning")
        self.log = CacheLog(self.log)
        return self.log

    def hashes(self):
        """Return the set of the hashes under which something can be read (for tests)."""
        return set()
