"""Queue of events: slots in order of time, any of which can be moved."""
cimport cython
from libc.math cimport INFINITY
from libc.stdint cimport int32_t
from libc.stdlib cimport free

from simulator.core.errors cimport broken
from simulator.core.memory cimport resize


@cython.final
cdef class TimeHeap:
    """An indexed binary heap of slots, earliest first."""

    def __dealloc__(self):
        free(self._heap)
        free(self._position)

    cdef int reserve(self, int32_t slots) except -1 nogil:
        cdef int32_t slot
        if slots <= self._room:
            return 0
        resize(&self._heap, slots * sizeof(Timed))
        resize(&self._position, slots * sizeof(int32_t))
        for slot in range(self._room, slots):
            self._position[slot] = -1
        self._room = slots
        return 0

    cdef void put(self, int32_t slot, double time_ns) noexcept nogil:
        cdef int32_t position = self._position[slot]
        cdef Timed entry = Timed(time_ns, slot)
        if position < 0:
            self.size += 1
            self._sift_up(self.size - 1, entry)
        elif time_ns < self._heap[position].time_ns:
            self._sift_up(position, entry)
        else:
            self._sift_down(position, entry)

    cdef int32_t pop(self) noexcept nogil:
        cdef int32_t slot = self._heap[0].slot
        self._position[slot] = -1
        self.size -= 1
        if self.size:
            self._sift_down(0, self._heap[self.size])
        return slot

    cdef double next_time(self) noexcept nogil:
        return self._heap[0].time_ns if self.size else INFINITY

    cdef void clear(self) noexcept nogil:
        cdef int32_t i
        for i in range(self.size):
            self._position[self._heap[i].slot] = -1
        self.size = 0

    cpdef int check(self) except -1 nogil:
        cdef int32_t i
        for i in range(self.size):
            if self._heap[i].time_ns < self._heap[(i - 1) // 2 if i else 0].time_ns:
                return broken("network: a slot stands after a later one")
            if self._position[self._heap[i].slot] != i:
                return broken("network: a slot is not where it should be")
        return 0

    cdef void _sift_up(self, int32_t hole, Timed entry) noexcept nogil:
        cdef int32_t parent
        while hole > 0:
            parent = (hole - 1) >> 1
            if self._heap[parent].time_ns <= entry.time_ns:
                break
            self._heap[hole] = self._heap[parent]
            self._position[self._heap[hole].slot] = hole
            hole = parent
        self._heap[hole] = entry
        self._position[entry.slot] = hole

    cdef void _sift_down(self, int32_t hole, Timed entry) noexcept nogil:
        cdef int32_t child = 2 * hole + 1
        while child < self.size:
            if child + 1 < self.size and self._heap[child + 1].time_ns < self._heap[child].time_ns:
                child += 1
            if entry.time_ns <= self._heap[child].time_ns:
                break
            self._heap[hole] = self._heap[child]
            self._position[self._heap[hole].slot] = hole
            hole = child
            child = 2 * hole + 1
        self._heap[hole] = entry
        self._position[entry.slot] = hole
