"""In which iteration each decoding sequence ends."""
from libc.stdlib cimport calloc, free

from simulator.core.errors cimport broken
from simulator.core.heap cimport in_order, sift


cdef class FinishHeap:
    """Slots in order of iteration, then of the `order` given at the push."""

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self._num_shelves):
            if i != self._at_hand:
                free(self._shelves[i].entries)
        free(self._shelves)
        free(self._heap.entries)

    cdef int divide(self, int32_t count) except -1:
        self._shelves = <RowHeap*>calloc(count, sizeof(RowHeap))
        if self._shelves == NULL:
            raise MemoryError()
        self._num_shelves = count
        return 0

    cdef void turn_to(self, int32_t index) noexcept nogil:
        self._shelves[self._at_hand] = self._heap
        self._heap = self._shelves[index]
        self._at_hand = index

    cdef int64_t total_size(self) noexcept nogil:
        cdef int64_t total = self._heap.size
        cdef int32_t i
        for i in range(self._num_shelves):
            total += self._shelves[i].size if i != self._at_hand else 0
        return total

    cdef int64_t _find(self, int32_t slot) noexcept nogil:
        cdef const Keyed* heap = self._heap.entries
        cdef int64_t i = 0
        while i + 4 <= self._heap.size and not (
                (finish_slot(&heap[i]) == slot) | (finish_slot(&heap[i + 1]) == slot) |
                (finish_slot(&heap[i + 2]) == slot) | (finish_slot(&heap[i + 3]) == slot)):
            i += 4
        while i < self._heap.size:
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
        cdef int64_t hole = self._find(slot)
        if hole < 0:
            return -1
        self._heap.size -= 1
        if hole < self._heap.size:
            sift(self._heap.entries, NULL, self._heap.size, hole, self._heap.entries[self._heap.size])
        return 0

    cdef void clear(self) noexcept nogil:
        cdef int32_t i
        self._heap.size = 0
        for i in range(self._num_shelves):
            self._shelves[i].size = 0

    cpdef int check(self) except -1 nogil:
        cdef int64_t i
        if not in_order(self._heap.entries, self._heap.size):
            return broken("FinishHeap: an entry stands before its parent")
        for i in range(self._heap.size):
            if self._find(finish_slot(&self._heap.entries[i])) != i:
                return broken("FinishHeap: a slot is in it twice")
        return 0

    # The face for tests and exploration.

    def __len__(self):
        return self._heap.size

    def __contains__(self, slot):
        return self._find(slot) >= 0

    def push_slot(self, iteration, order, slot):
        """Add a slot that is not in it."""
        self.push(iteration, order, slot)

    def pop_slot(self):
        """Remove and return the slot that ends first."""
        if self._heap.size == 0:
            raise IndexError("pop from an empty FinishHeap")
        return self.pop()

    def top(self):
        """Return (iteration, slot) of the slot that ends first."""
        if self._heap.size == 0:
            raise IndexError("top of an empty FinishHeap")
        return self.top_iteration(), self.top_slot()

    def remove_slot(self, slot):
        """Remove a slot wherever it is."""
        if self.remove(slot) < 0:
            raise KeyError(slot)

    def empty(self):
        """Forget every entry."""
        self.clear()
