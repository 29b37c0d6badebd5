"""The iteration in which each decoding sequence ends: the next to end is always on top.

Touched twice a request in the hottest path, so an entry is 16 bytes and there is no map from slot to position: a
sequence that ends is on top, and the rare removal of another one (a preemption, a time-out) searches the array.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.core.arithmetic cimport pair_before


cdef enum:
    SLOT_BITS = 24              # slot < 2**24, order < 2**39


cdef struct Finish:
    int64_t iteration           # the sequence is complete at the end of this iteration, >= 0
    int64_t order_slot          # order << SLOT_BITS | slot; order settles equal iterations


cdef inline int32_t finish_slot(const Finish* finish) noexcept nogil:
    return <int32_t>(finish.order_slot & ((1 << SLOT_BITS) - 1))

cdef inline bint finish_before(const Finish* a, const Finish* b) noexcept nogil:
    return pair_before(a.iteration, a.order_slot, b.iteration, b.order_slot)


cdef struct Shelf:              # a heap that is not at hand
    Finish* heap
    int32_t size, room


@cython.final
cdef class FinishHeap:
    cdef Finish* _heap          # children of i: 4i + 1 .. 4i + 4, one cache line
    cdef readonly int32_t size
    cdef int32_t _room          # entries that fit before it must grow
    cdef Shelf* _shelves        # [_num_shelves] where the heaps of several groups are kept, but for the one at hand
    cdef int32_t _num_shelves   # 0: there is one heap
    cdef int32_t _at_hand       # which one is

    # Keep `count` heaps, of which the first is at hand, empty. All functions concern the one at hand, but `remove` and
    # `clear` all.
    cdef int divide(self, int32_t count) except -1

    # Have another one at hand.
    cdef void turn_to(self, int32_t index) noexcept nogil

    # Entries of all heaps.
    cdef int32_t total_size(self) noexcept nogil

    # Add a slot that is not in it. -1 without memory, and nothing changed.
    cdef inline int push(self, int64_t iteration, int64_t order, int32_t slot) except -1 nogil:
        if self.size == self._room:
            self._grow()
        cdef Finish finish
        finish.iteration = iteration
        finish.order_slot = (order << SLOT_BITS) | slot
        self.size += 1
        self._sift_up(self.size - 1, &finish)
        return 0

    # Address of the first to end, for a prefetch.
    cdef inline const Finish* first(self) noexcept nogil:
        return self._heap

    # The iteration of the first to end; the heap must not be empty. Also for its slot below.
    cdef inline int64_t top_iteration(self) noexcept nogil:
        return self._heap[0].iteration

    # The iteration of the first to end in heap `index`.
    cdef inline int64_t top_iteration_of(self, int32_t index) noexcept nogil:
        return self._heap[0].iteration if index == self._at_hand else self._shelves[index].heap[0].iteration

    cdef inline int32_t top_slot(self) noexcept nogil:
        return finish_slot(self._heap)

    # Remove and return the slot of the first to end. The heap must not be empty.
    cdef inline int32_t pop(self) noexcept nogil:
        cdef int32_t slot = finish_slot(self._heap)
        self.size -= 1
        if self.size > 0:
            self._sift_down(0, &self._heap[self.size])
        return slot

    # Put `finish` where it belongs, from the hole `hole` upwards.
    cdef inline void _sift_up(self, int32_t hole, const Finish* finish) noexcept nogil:
        cdef int32_t parent
        cdef Finish entry = finish[0]
        while hole > 0:
            parent = (hole - 1) >> 2
            if not finish_before(&entry, &self._heap[parent]):
                break
            self._heap[hole] = self._heap[parent]
            hole = parent
        self._heap[hole] = entry

    # Sift downwards.
    cdef inline void _sift_down(self, int32_t hole, const Finish* finish) noexcept nogil:
        cdef Finish* heap = self._heap
        cdef Finish entry = finish[0]
        cdef int32_t first = 4 * hole + 1, child, other
        while first < self.size:
            if first + 4 <= self.size:          # a whole family: a knock-out without branches
                child = first + finish_before(&heap[first + 1], &heap[first])
                other = first + 2 + finish_before(&heap[first + 3], &heap[first + 2])
                child = other if finish_before(&heap[other], &heap[child]) else child
            else:
                child = first
                for other in range(first + 1, self.size):
                    child = other if finish_before(&heap[other], &heap[child]) else child
            if not finish_before(&heap[child], &entry):
                break
            heap[hole] = heap[child]
            hole = child
            first = 4 * hole + 1
        heap[hole] = entry

    # Remove a slot wherever it is, in whichever heap; 0, or -1 if it is not there. O(size).
    cdef int remove(self, int32_t slot) noexcept nogil

    # Is the slot in it? O(size).
    cdef bint contains(self, int32_t slot) noexcept nogil

    # Forget every entry; keeps the memory.
    cdef void clear(self) noexcept nogil

    # Make room for `room` entries. -1 without memory, and nothing changed.
    cdef int reserve(self, int32_t room) except -1 nogil

    cdef int32_t _find(self, int32_t slot) noexcept nogil
    cdef int _remove_here(self, int32_t slot) noexcept nogil
    cdef int _grow(self) except -1 nogil

    # Raise RuntimeError if an entry is ordered before its parent or a slot is in it twice. O(size**2).
    cpdef int check(self) except -1 nogil
