"""The iteration in which each decoding sequence ends: the next to end is always on top.

Touched twice a request in the hottest path, so an entry is 16 bytes and there is no map from slot to position: a
sequence that ends is on top, and the rare removal of another one (a preemption, a time-out) searches the array.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.core.heap cimport Keyed, RowHeap, pop_row, push_row


cdef enum:
    SLOT_BITS = 24              # slot < 2**24, order < 2**39


# The slot of an entry. Key: the sequence is complete at the end of this iteration. Number: order << SLOT_BITS |
# slot: the order settles equal iterations.
cdef inline int32_t finish_slot(const Keyed* finish) noexcept nogil:
    return <int32_t>(finish.number & ((1 << SLOT_BITS) - 1))


@cython.final
cdef class FinishHeap:
    cdef RowHeap _heap          # the heap at hand
    cdef RowHeap* _shelves      # [_num_shelves] where the heaps of several groups are kept, but for the one at hand
    cdef int32_t _num_shelves   # 0: there is one heap
    cdef int32_t _at_hand       # which one is

    # Keep `count` heaps, of which the first is at hand, empty. All functions concern the one at hand, but `remove` and
    # `clear` all.
    cdef int divide(self, int32_t count) except -1

    # Have another one at hand.
    cdef void turn_to(self, int32_t index) noexcept nogil

    # Entries of the heap at hand; of all heaps.
    cdef inline int64_t size(self) noexcept nogil:
        return self._heap.size

    cdef int64_t total_size(self) noexcept nogil

    # Add a slot that is not in it. -1 without memory, and nothing changed.
    cdef inline int push(self, int64_t iteration, int64_t order, int32_t slot) except -1 nogil:
        return push_row(&self._heap, iteration, (order << SLOT_BITS) | slot)

    # Address of the first to end, for a prefetch.
    cdef inline const Keyed* first(self) noexcept nogil:
        return self._heap.entries

    # The iteration of the first to end; the heap must not be empty. Also for its slot below.
    cdef inline int64_t top_iteration(self) noexcept nogil:
        return self._heap.entries[0].key

    # The iteration of the first to end in heap `index`.
    cdef inline int64_t top_iteration_of(self, int32_t index) noexcept nogil:
        return self._heap.entries[0].key if index == self._at_hand else self._shelves[index].entries[0].key

    cdef inline int32_t top_slot(self) noexcept nogil:
        return finish_slot(self._heap.entries)

    # Remove and return the slot of the first to end. The heap must not be empty.
    cdef inline int32_t pop(self) noexcept nogil:
        cdef Keyed first = pop_row(&self._heap)
        return finish_slot(&first)

    # Remove a slot wherever it is, in whichever heap; 0, or -1 if it is not there. O(size).
    cdef int remove(self, int32_t slot) noexcept nogil

    # Forget every entry; keeps the memory.
    cdef void clear(self) noexcept nogil

    cdef int64_t _find(self, int32_t slot) noexcept nogil
    cdef int _remove_here(self, int32_t slot) noexcept nogil

    # Raise RuntimeError if an entry is ordered before its parent or a slot is in it twice. O(size**2).
    cpdef int check(self) except -1 nogil
