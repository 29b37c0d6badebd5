"""The hashes that enter and leave a prefix cache, or a level of a tier, for a follower outside the replica."""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython


cdef struct CacheChange:
    uint64_t hash               # of the text of a block and all before it
    int32_t is_there            # True: the first block with this hash was cached; else the last one is gone
    int32_t spare


@cython.final
cdef class CacheLog:
    cdef CacheChange* changes   # [size] since the follower emptied it
    cdef int64_t size
    cdef int64_t _room          # changes that fit before it must grow
    cdef bint has_lost_some     # an entry is missing: there was no memory
    cdef CacheLog _other        # the log of another follower; None: there is none

    cdef void note(self, uint64_t hash, bint is_there) noexcept nogil
