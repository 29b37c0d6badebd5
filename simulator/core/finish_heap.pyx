"""In which iteration each decoding sequence ends."""
from libc.stdint cimport int32_t
from libc.stdlib cimport free

from simulator.core.errors cimport broken
from simulator.core.memory cimport resize

cdef enum:
    FIRST_ROOM = 64


cdef class FinishHeap:
    """Slots in order of iteration, then of the `order` given at the push."""

    def __dealloc__(self):
        free(self._heap)

    cdef int32_t _find(self, int32_t slot) noexcept nogil:
        cdef int32_t i
        for i in range(self.size):
            if finish_slot(&self._heap[i]) == slot:
                return i
        return -1

    cdef int remove(self, int32_t slot) noexcept nogil:
        cdef int32_t hole = self._find(slot)
        if hole < 0:
            return -1
        self.size -= 1
        if hole == self.size:
            return 0
        cdef Finish last = self._heap[self.size]
        if finish_before(&last, &self._heap[hole]):
            self._sift_up(hole, &last)
        else:
            self._sift_down(hole, &last)
        return 0

    cdef bint contains(self, int32_t slot) noexcept nogil:
        return self._find(slot) >= 0

    cdef void clear(self) noexcept nogil:
        self.size = 0

    cdef int reserve(self, int32_t room) except -1 nogil:
        if room <= self._room:
            return 0
        resize(&self._heap, room * sizeof(Finish))
        self._room = room
        return 0

    cdef int _grow(self) except -1 nogil:
        return self.reserve(max(<int32_t>FIRST_ROOM, 2 * self._room))

    cpdef int check(self) except -1 nogil:
        cdef int32_t i
        for i in range(self.size):
            if i > 0 and finish_before(&self._heap[i], &self._heap[(i - 1) >> 2]):
                return broken("FinishHeap: an entry stands before its parent")
            if self._find(finish_slot(&self._heap[i])) != i:
                return broken("FinishHeap: a slot is in it twice")
        return 0

    # The face for tests and exploration.

    def __len__(self):
        return self.size

    def __contains__(self, slot):
        return self.contains(slot)

    def push_slot(self, iteration, order, slot):
        """Add a slot that is not in it."""
        self.push(iteration, order, slot)

    def pop_slot(self):
        """Remove and return the slot that ends first."""
        if self.size == 0:
            raise IndexError("pop from an empty FinishHeap")
        return self.pop()

    def top(self):
        """Return (iteration, slot) of the slot that ends first."""
        if self.size == 0:
            raise IndexError("top of an empty FinishHeap")
        return self.top_iteration(), self.top_slot()

    def remove_slot(self, slot):
        """Remove a slot wherever it is."""
        if self.remove(slot) < 0:
            raise KeyError(slot)

    def empty(self):
        """Forget every entry."""
        self.clear()
