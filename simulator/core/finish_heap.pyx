"""In which iteration each decoding sequence ends."""
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free

from simulator.core.errors cimport broken
from simulator.core.memory cimport resize

cdef enum:
    FIRST_ROOM = 64


cdef class FinishHeap:
    """Slots in order of iteration, then of the `order` given at the push."""

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self._num_shelves):
            if i != self._at_hand:
                free(self._shelves[i].heap)
        free(self._shelves)
        free(self._heap)

    cdef int divide(self, int32_t count) except -1:
        self._shelves = <Shelf*>calloc(count, sizeof(Shelf))
        if self._shelves == NULL:
            raise MemoryError()
        self._num_shelves = count
        return 0

    cdef void turn_to(self, int32_t index) noexcept nogil:
        cdef Shelf* shelf = &self._shelves[self._at_hand]
        shelf.heap, shelf.size, shelf.room = self._heap, self.size, self._room
        shelf = &self._shelves[index]
        self._heap, self.size, self._room = shelf.heap, shelf.size, shelf.room
        self._at_hand = index

    cdef int32_t total_size(self) noexcept nogil:
        cdef int32_t total = self.size, i
        for i in range(self._num_shelves):
            total += self._shelves[i].size if i != self._at_hand else 0
        return total

    cdef int32_t _find(self, int32_t slot) noexcept nogil:
        cdef const Finish* heap = self._heap
        cdef int32_t i = 0
        while i + 4 <= self.size and not ((finish_slot(&heap[i]) == slot) | (finish_slot(&heap[i + 1]) == slot) |
                                          (finish_slot(&heap[i + 2]) == slot) | (finish_slot(&heap[i + 3]) == slot)):
            i += 4
        while i < self.size:
            if finish_slot(&heap[i]) == slot:
                return i
            i += 1
        return -1

    cdef int remove(self, int32_t slot) noexcept nogil:
        cdef int32_t at_hand = self._at_hand, i = 0
        cdef int missing = self._remove_here(slot)
        while missing and i < self._num_shelves:
            self.turn_to(i)
            missing = self._remove_here(slot)
            i += 1
        if i > 0:
            self.turn_to(at_hand)
        return missing

    cdef int _remove_here(self, int32_t slot) noexcept nogil:
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
        cdef int32_t i
        self.size = 0
        for i in range(self._num_shelves):
            self._shelves[i].size = 0

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
