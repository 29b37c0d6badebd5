"""Blocks of requests that have ended while a tier still reads them: each reuse or hit of such a block is noted.

vLLM frees such blocks at once; the step that gives one to a sequence waits until it has been read. A block, or its
substitute, is known by an index; a reader by a name that the tier chooses.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.core.hash_map cimport HashMap


cdef enum:
    GIVEN_AWAY = -1             # in place of a block: it was given to another sequence, and the reader was noted


cdef struct Fence:
    int64_t reader
    int32_t block               # GIVEN_AWAY; below that: the reader's blocks without an index, as one fence. Of a
                                # fence not in use: meaningless
    int32_t place               # of the block, in the reader's text; of several blocks: how many are left
    int32_t following           # next fence of the block, or next one not in use; -1: none
    int32_t sibling             # next fence of the reader; -1: none


cdef struct Touched:            # a block with a fence that a sequence got
    int64_t reader
    int32_t place
    int32_t block               # -1: it has no index


@cython.final
cdef class Fences:
    cdef Touched* touched       # [num_touched] since the tier emptied it
    cdef int32_t num_touched
    cdef readonly int32_t size  # fences on blocks; a block counts once for each reader
    cdef Fence* _fences         # [_room]
    cdef int32_t _room
    cdef int32_t _room_touched
    cdef int32_t _free          # first not in use; -1: none
    cdef HashMap _of_block      # mixed index -> the fence put up last on the block
    cdef HashMap _of_reader     # mixed name -> the fence put up last for the reader

    # Put a fence on a block that a reader still reads.
    cdef int put_up(self, int32_t block, int64_t reader, int32_t place) except -1 nogil

    # A sequence gets a block.
    cdef inline int touch(self, int32_t block) except -1 nogil:
        return self._touch(block) if self.size > 0 else 0

    # A sequence gets a block, and its index is for another block from now on: remove the fences on it, too.
    cdef inline void touch_last(self, int32_t block) noexcept nogil:
        if self.size > 0:
            self._touch_last(block)

    # Put up a fence for `count` blocks of a reader that have no index; a sequence gets the blocks at places
    # begin .. end - 1 of the reader's text, from the last on.
    cdef int put_up_many(self, int64_t reader, int32_t count) except -1 nogil
    cdef void touch_many(self, int64_t reader, int32_t begin, int32_t end) noexcept nogil

    # The reader reads nothing any more.
    cdef void take_down(self, int64_t reader) noexcept nogil

    cdef int _touch(self, int32_t block) except -1 nogil
    cdef void _touch_last(self, int32_t block) noexcept nogil
    cdef int _put_up(self, int32_t block, int64_t reader, int32_t place, int32_t count) except -1 nogil
    cdef int _make_room(self) except -1 nogil
    cdef void _note(self, int64_t reader, int32_t place, int32_t block) noexcept nogil
    cdef void _remove(self, int32_t fence) noexcept nogil
    cdef void _leave_block(self, int32_t fence, uint64_t key) noexcept nogil
