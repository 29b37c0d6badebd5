"""Something beyond the blocks of a replica that keeps KV of texts under hashes, for who follows it from outside."""
from libc.stdint cimport int64_t, uint64_t

from simulator.kv.cache_log cimport CacheLog


cdef class ChunkStore:
    cdef CacheLog log           # of chunks that can be read from now on, and of those that are gone; None: nobody asks

    # Can the chunk of a text up to this hash be read?
    cdef bint has(self, uint64_t hash) noexcept nogil

    # Take notice of what has been written by `now_ns`, where nobody of its own does so in time: several share it.
    cdef int settle(self, int64_t now_ns) except -1 nogil
