"""Stores beyond the blocks of a replica that keep KV of texts under hashes: the base, which holds nothing."""


cdef class ChunkStore:
    """Base of stores of chunks; see chunk_store.pxd for the contract."""

    cdef bint has(self, uint64_t hash) noexcept nogil:
        return False

    cdef int settle(self, int64_t now_ns) except -1 nogil:
        return 0

    def follow(self):
        """Return a CacheLog of hashes that enter and leave from now on; the store must be empty. Several may follow."""
        if self.hashes():
            raise ValueError("a store can be followed only from its beginning")
        self.log = CacheLog(self.log)
        return self.log

    def hashes(self):
        """Return the set of the hashes that can be read (for tests)."""
        return set()
