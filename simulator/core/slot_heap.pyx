"""Instants of slots, in order, each of which can be moved."""
cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free

from simulator.core.errors cimport broken
from simulator.core.memory cimport resize


@cython.final
cdef class SlotHeap:
    """A binary heap of slots that records the place of each one."""

    def __dealloc__(self):
        free(self._heap)
        free(self._places)

    cdef int reserve(self, int32_t slots) except -1 nogil:
        cdef int32_t slot
        if slots <= self._room:
            return 0
        resize(&self._heap, slots * sizeof(TimedSlot))
        resize(&self._places, slots * sizeof(int32_t))
        for slot in range(self._room, slots):
            self._places[slot] = -1
        self._room = slots
        return 0

    cdef void put(self, int32_t slot, int64_t time_ns, int64_t order) noexcept nogil:
        cdef int32_t place = self._places[slot]
        cdef TimedSlot entry
        entry.time_ns, entry.order, entry.slot, entry.spare = time_ns, order, slot, 0
        if place < 0:
            self.size += 1
            self._sift_up(self.size - 1, entry)
            return
        entry.order = self._heap[place].order
        if time_ns < self._heap[place].time_ns:
            self._sift_up(place, entry)
        else:
            self._sift_down(place, entry)

    cdef void remove(self, int32_t slot) noexcept nogil:
        cdef int32_t place = self._places[slot]
        cdef TimedSlot last
        if place < 0:
            return
        self._places[slot] = -1
        self.size -= 1
        if place == self.size:
            return
        last = self._heap[self.size]
        if place > 0 and slot_before(&last, &self._heap[(place - 1) >> 1]):
            self._sift_up(place, last)
        else:
            self._sift_down(place, last)

    cdef void _sift_up(self, int32_t hole, TimedSlot entry) noexcept nogil:
        cdef int32_t parent
        while hole > 0:
            parent = (hole - 1) >> 1
            if not slot_before(&entry, &self._heap[parent]):
                break
            self._heap[hole] = self._heap[parent]
            self._places[self._heap[hole].slot] = hole
            hole = parent
        self._heap[hole] = entry
        self._places[entry.slot] = hole

    cdef void _sift_down(self, int32_t hole, TimedSlot entry) noexcept nogil:
        cdef int32_t child = 2 * hole + 1
        while child < self.size:
            if child + 1 < self.size and slot_before(&self._heap[child + 1], &self._heap[child]):
                child += 1
            if not slot_before(&self._heap[child], &entry):
                break
            self._heap[hole] = self._heap[child]
            self._places[self._heap[hole].slot] = hole
            hole = child
            child = 2 * hole + 1
        self._heap[hole] = entry
        self._places[entry.slot] = hole

    cpdef int check(self) except -1 nogil:
        cdef int32_t i
        for i in range(self.size):
            if i > 0 and slot_before(&self._heap[i], &self._heap[(i - 1) >> 1]):
                return broken("slot heap: a slot stands before its parent")
            if self._places[self._heap[i].slot] != i:
                return broken("slot heap: a slot is not where it should be")
        return 0

    # ---- the face for tests and exploration

    def move(self, slot, time_ns, order):
        """Add a slot, or move it."""
        self.reserve(slot + 1)
        self.put(slot, time_ns, order)

    def drop(self, slot):
        """Take a slot out."""
        if slot < self._room:
            self.remove(slot)

    def first(self):
        """Return (time_ns, slot) of the first; None: there is none."""
        return (self.next_ns(), self.top()) if self.size > 0 else None
