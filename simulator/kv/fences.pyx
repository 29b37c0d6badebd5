"""Blocks of requests that have ended while a tier still reads them."""
from libc.stdlib cimport free
cimport cython

from simulator.core.memory cimport resize


cdef inline uint64_t mixed(int64_t name) noexcept nogil:
    """Mix a name as HashMap wants its keys: times 2**64 / golden ratio, the high half down; one to one."""
    cdef uint64_t product = (<uint64_t>name + 1) * <uint64_t>0x9E3779B97F4A7C15
    return product ^ product >> 32


cdef inline int32_t _index_of(int64_t reader) noexcept nogil:
    """Return the substitute for the index of a reader's blocks that have none: below GIVEN_AWAY."""
    return -2 - <int32_t>(reader & 0x3FFFFFFF)


@cython.final
cdef class Fences:
    """Readers of blocks, by block and by reader."""

    def __cinit__(self):
        self._of_block, self._of_reader = HashMap(), HashMap()
        self._free = -1

    def __dealloc__(self):
        free(self._fences)
        free(self.touched)

    cdef int put_up(self, int32_t block, int64_t reader, int32_t place) except -1 nogil:
        return self._put_up(block, reader, place, 1)

    cdef int put_up_many(self, int64_t reader, int32_t count) except -1 nogil:
        return self._put_up(_index_of(reader), reader, count, count)

    cdef int _put_up(self, int32_t block, int64_t reader, int32_t place, int32_t count) except -1 nogil:
        cdef int32_t before = self._room, fence, i
        if self._free < 0:
            resize(&self._fences, (2 * before + 16) * sizeof(Fence))
            self._room = 2 * before + 16
            for i in range(self._room - 1, before - 1, -1):
                self._fences[i].following = self._free
                self._free = i
        self._of_block.reserve(self._of_block.size + 1)
        self._of_reader.reserve(self._of_reader.size + 1)
        self.size += count
        self._make_room()
        fence = self._free
        self._free = self._fences[fence].following
        self._fences[fence].block, self._fences[fence].reader, self._fences[fence].place = block, reader, place
        self._fences[fence].following = self._of_block.get(mixed(block))
        self._fences[fence].sibling = self._of_reader.get(mixed(reader))
        self._of_block.put(mixed(block), fence)
        self._of_reader.put(mixed(reader), fence)
        return 0

    cdef int _make_room(self) except -1 nogil:
        """Make room to note one block, and each fence once more."""
        cdef int32_t room = self.num_touched + self.size + 1
        if room > self._room_touched:
            resize(&self.touched, 2 * <size_t>room * sizeof(Touched))
            self._room_touched = 2 * room
        return 0

    cdef void _note(self, int64_t reader, int32_t place, int32_t block) noexcept nogil:
        self.touched[self.num_touched] = Touched(reader, place, block)
        self.num_touched += 1

    cdef int _touch(self, int32_t block) except -1 nogil:
        cdef int32_t fence = self._of_block.get(mixed(block))
        while fence >= 0:
            self._note(self._fences[fence].reader, self._fences[fence].place, block)
            self._make_room()
            fence = self._fences[fence].following
        return 0

    cdef void _touch_last(self, int32_t block) noexcept nogil:
        cdef int32_t fence = self._of_block.get(mixed(block))
        if fence >= 0:
            self._of_block.remove(mixed(block))
        while fence >= 0:
            self._note(self._fences[fence].reader, self._fences[fence].place, block)
            self._fences[fence].block = GIVEN_AWAY
            self.size -= 1
            fence = self._fences[fence].following

    cdef void touch_many(self, int64_t reader, int32_t begin, int32_t end) noexcept nogil:
        cdef int32_t fence = self._of_block.get(mixed(_index_of(reader))) if self.size > 0 else -1, place
        while fence >= 0 and self._fences[fence].reader != reader:
            fence = self._fences[fence].following
        if fence < 0:
            return
        for place in range(end - 1, begin - 1, -1):
            self._note(reader, place, -1)
        self._fences[fence].place -= end - begin
        self.size -= end - begin

    cdef void take_down(self, int64_t reader) noexcept nogil:
        cdef int32_t fence = self._of_reader.remove(mixed(reader)) if self._of_reader.size > 0 else -1, following
        while fence >= 0:
            following = self._fences[fence].sibling
            self._remove(fence)
            fence = following

    cdef void _remove(self, int32_t fence) noexcept nogil:
        """Remove a fence from the list of its block."""
        cdef int32_t block = self._fences[fence].block
        if block != GIVEN_AWAY:
            self._leave_block(fence, mixed(block))
            self.size -= 1 if block > GIVEN_AWAY else self._fences[fence].place
        self._fences[fence].following = self._free
        self._free = fence

    cdef void _leave_block(self, int32_t fence, uint64_t key) noexcept nogil:
        cdef int32_t other = self._of_block.get(key)
        if other == fence and self._fences[fence].following < 0:
            self._of_block.remove(key)
        elif other == fence:
            self._of_block.replace(key, self._fences[fence].following)
        else:
            while self._fences[other].following != fence:
                other = self._fences[other].following
            self._fences[other].following = self._fences[fence].following

    def clear(self):
        """Remove all fences."""
        cdef int32_t i
        self._of_block.clear()
        self._of_reader.clear()
        self.size = self.num_touched = 0
        self._free = -1
        for i in range(self._room - 1, -1, -1):
            self._fences[i].following = self._free
            self._free = i
