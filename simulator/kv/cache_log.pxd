"""What enters and leaves a prefix cache, or a level of a tier, for somebody who follows it from outside."""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython


cdef struct CacheChange:
    uint64_t hash               # of the text of a block and all before it
    int32_t is_there            # the first block with it came; else the last one went
    int32_t spare


@cython.final
cdef class CacheLog:
    cdef CacheChange* changes   # [size] since somebody emptied it
    cdef int64_t size
    cdef int64_t _room          # changes that fit before it must grow
    cdef bint has_lost_some     # there was no memory
    cdef CacheLog _other        # of somebody else who follows it, too; None: nobody does

    cdef void note(self, uint64_t hash, bint is_there) noexcept nogil
