"""Blocks of requests that have ended while a tier still reads them."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.core.memory cimport resize


cdef inline uint64_t mixed(int64_t name) noexcept nogil:
    """Mix a name as HashMap wants its keys: times 2**64 / golden ratio, the high half down; one to one."""
    cdef uint64_t product = (<uint64_t>name + 1) * <uint64_t>0x9E3779B97F4A7C15
    return product ^ product >> 32


@cython.final
cdef class Fences:
    """Who reads which blocks."""

    def __cinit__(self):
        self._of_block, self._of_reader = HashMap(), HashMap()
        self._free = -1

    def __dealloc__(self):
        free(self._fences)
        free(self.touched)

    cdef int put_up(self, int32_t block, int64_t reader, int32_t place) except -1 nogil:
        cdef int32_t before = self._room, fence, i
        if self._free < 0:
            resize(&self._fences, (2 * before + 16) * sizeof(Fence))
            self._room = 2 * before + 16
            for i in range(self._room - 1, before - 1, -1):
                self._fences[i].following = self._free
                self._free = i
        self._of_block.reserve(self._of_block.size + 1)
        self._of_reader.reserve(self._of_reader.size + 1)
        fence = self._free
        self._free = self._fences[fence].following
        self._fences[fence].block, self._fences[fence].reader, self._fences[fence].place = block, reader, place
        self._fences[fence].following = self._of_block.get(mixed(block))
        self._fences[fence].sibling = self._of_reader.get(mixed(reader))
        self._of_block.put(mixed(block), fence)
        self._of_reader.put(mixed(reader), fence)
        self.size += 1
        return 0

    cdef int note(self, int64_t reader, int32_t place, int32_t block) except -1 nogil:
        if self.num_touched == self._room_touched:
            resize(&self.touched, (2 * self._room_touched + 8) * sizeof(Touched))
            self._room_touched = 2 * self._room_touched + 8
        self.touched[self.num_touched] = Touched(reader, place, block)
        self.num_touched += 1
        return 0

    cdef int _touch(self, int32_t block) except -1 nogil:
        cdef int32_t fence = self._of_block.get(mixed(block))
        while fence >= 0:
            self.note(self._fences[fence].reader, self._fences[fence].place, block)
            fence = self._fences[fence].following
        return 0

    cdef void take_down(self, int64_t reader) noexcept nogil:
        cdef int32_t fence = self._of_reader.remove(mixed(reader)) if self.size > 0 else -1, following
        while fence >= 0:
            following = self._fences[fence].sibling
            self._remove(fence)
            fence = following

    cdef void _remove(self, int32_t fence) noexcept nogil:
        """Take a fence from those of its block."""
        cdef uint64_t key = mixed(self._fences[fence].block)
        cdef int32_t other = self._of_block.get(key)
        if other == fence and self._fences[fence].following < 0:
            self._of_block.remove(key)
        elif other == fence:
            self._of_block.replace(key, self._fences[fence].following)
        else:
            while self._fences[other].following != fence:
                other = self._fences[other].following
            self._fences[other].following = self._fences[fence].following
        self._fences[fence].following = self._free
        self._free = fence
        self.size -= 1

    def clear(self):
        """Take all down."""
        cdef int32_t i
        self._of_block.clear()
        self._of_reader.clear()
        self.size = self.num_touched = 0
        self._free = -1
        for i in range(self._room - 1, -1, -1):
            self._fences[i].following = self._free
            self._free = i
