"""One direction of a link over which blocks are copied: the duration of concurrent copies."""
from libc.stdint cimport int32_t, int64_t
cimport cython


cdef class Lane:
    cdef double _base_ns        # of each copy, before its first byte
    cdef double _per_block_ns   # of a block that has the link to itself
    cdef int64_t _next_end_ns   # see next_end_ns; begin(), take() and clear() keep it up to date

    # Begin a copy of `num_blocks` blocks at `now_ns`, not before any that began earlier.
    cdef int begin(self, int32_t copy, int64_t num_blocks, int64_t now_ns) except -1 nogil

    # How long the link is busy with `num_copies` copies of `num_blocks` blocks in total, one by one.
    cdef double busy_ns(self, int64_t num_copies, int64_t num_blocks) noexcept nogil

    # When something may change next; NEVER_NS: no copy is under way. end_ns(): when a copy ends if no more begin; -1:
    # it is not under way.
    @cython.final
    cdef inline int64_t next_end_ns(self) noexcept nogil:
        return self._next_end_ns

    cdef int64_t end_ns(self, int32_t copy) except -2 nogil

    # Take the first copy that has ended by `until_ns`; -1: there is none.
    cdef int32_t take(self, int64_t until_ns) except -2 nogil

    # Cancel the copies under way.
    cdef void clear(self) noexcept nogil
