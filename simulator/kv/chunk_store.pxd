"""Base of stores beyond the blocks of a replica that keep KV of texts under hashes, for followers outside it."""
from libc.stdint cimport int64_t, uint64_t

from simulator.kv.cache_log cimport CacheLog


cdef class ChunkStore:
    cdef CacheLog log           # chunks that can be read from now on, and chunks that are gone; None: no follower

    # Can the chunk of a text up to this hash be read?
    cdef bint has(self, uint64_t hash) noexcept nogil

    # Notice writes that ended by `now_ns`, for a store that several replicas share and no replica polls in time.
    cdef int settle(self, int64_t now_ns) except -1 nogil
