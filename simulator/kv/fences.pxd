"""Blocks of requests that have ended while a tier still reads them: whoever gets one is noted.

vLLM frees such blocks at once; the step that gives one away waits until it has been read. A block, or what stands for
one, is known by an index; a reader by a name of the tier's.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.hash_map cimport HashMap


cdef struct Fence:
    int64_t reader
    int32_t block               # of a fence not in use: meaningless
    int32_t place               # of the block, in the reader's text
    int32_t following           # next of the block, or next not in use; -1: none
    int32_t sibling             # next of the reader; -1: none


cdef struct Touched:            # a block that somebody got
    int64_t reader
    int32_t place
    int32_t block


@cython.final
cdef class Fences:
    cdef Touched* touched       # [num_touched] since somebody emptied it
    cdef int32_t num_touched
    cdef readonly int32_t size  # fences that stand
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

    # Note that one is given away that has no index.
    cdef int note(self, int64_t reader, int32_t place, int32_t block) except -1 nogil

    # The reader reads nothing any more.
    cdef void take_down(self, int64_t reader) noexcept nogil

    cdef int _touch(self, int32_t block) except -1 nogil
    cdef void _remove(self, int32_t fence) noexcept nogil
