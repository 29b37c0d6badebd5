"""Blocks of requests that have ended while a tier still reads them: whoever gets one is noted.

vLLM frees such blocks at once; the step that gives one away waits until it has been read. A block, or what stands for
one, is known by an index; a reader by a name of the tier's.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.core.hash_map cimport HashMap


cdef enum:
    GIVEN_AWAY = -1             # no block: it was, and the reader was noted


cdef struct Fence:
    int64_t reader
    int32_t block               # GIVEN_AWAY; or below that: so many blocks of the reader's that have no index. Of a
                                # fence not in use: meaningless
    int32_t place               # of the block, in the reader's text; of several: how many of them are left
    int32_t following           # next of the block, or next not in use; -1: none
    int32_t sibling             # next of the reader; -1: none


cdef struct Touched:            # a block that somebody got
    int64_t reader
    int32_t place
    int32_t block               # -1: it has no index


@cython.final
cdef class Fences:
    cdef Touched* touched       # [num_touched] since somebody emptied it
    cdef int32_t num_touched
    cdef readonly int32_t size  # blocks with a fence, as often as they have one
    cdef Fence* _fences         # [_room]
    cdef int32_t _room
    cdef int32_t _room_touched
    cdef int32_t _free          # first not in use; -1: none
    cdef HashMap _of_block      # index, mixed -> its fence that was put up last
    cdef HashMap _of_reader     # name, mixed -> likewise

    # A reader still reads this block.
    cdef int put_up(self, int32_t block, int64_t reader, int32_t place) except -1 nogil

    # Somebody gets a block.
    cdef inline int touch(self, int32_t block) except -1 nogil:
        return self._touch(block) if self.size > 0 else 0

    # The same, and the index is that of another block from now on: the fence goes.
    cdef inline void touch_last(self, int32_t block) noexcept nogil:
        if self.size > 0:
            self._touch_last(block)

    # A reader still reads so many blocks that have no index; somebody gets those at places begin .. end - 1 of its
    # text, from the last on.
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
