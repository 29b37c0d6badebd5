"""Instants of slots, in order, each of which can be moved."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.core.arithmetic cimport pair_before
from simulator.core.clock cimport NEVER_NS


cdef struct TimedSlot:
    int64_t time_ns             # >= 0
    int64_t order               # settles equal times: the lower goes first; no two slots share one
    int32_t slot
    int32_t spare


cdef inline bint slot_before(const TimedSlot* a, const TimedSlot* b) noexcept nogil:
    return pair_before(a.time_ns, a.order, b.time_ns, b.order)


@cython.final
cdef class SlotHeap:
    cdef TimedSlot* _heap       # [size] children of i: 2i + 1, 2i + 2
    cdef int32_t* _places       # [_num_slots] of each slot in it; -1: it is not there
    cdef readonly int32_t size
    cdef int32_t _room          # slots that it can hold: 0 .. _room - 1

    # Make room for slots below `slots`. -1 without memory, and nothing changed.
    cdef int reserve(self, int32_t slots) except -1 nogil

    # Add a slot, or move it to another instant; `order` is of meaning when it is added. O(log size).
    cdef void put(self, int32_t slot, int64_t time_ns, int64_t order) noexcept nogil

    # Take a slot out, wherever it is; it may not be there. O(log size).
    cdef void remove(self, int32_t slot) noexcept nogil

    # The first slot, its order, and when it is due; -1 and NEVER_NS if there is none.
    cdef inline int32_t top(self) noexcept nogil:
        return self._heap[0].slot if self.size > 0 else -1

    cdef inline int64_t top_order(self) noexcept nogil:
        return self._heap[0].order if self.size > 0 else -1

    cdef inline int64_t next_ns(self) noexcept nogil:
        return self._heap[0].time_ns if self.size > 0 else NEVER_NS

    # Raise RuntimeError if a slot is ordered before its parent, or is not at its recorded place.
    cpdef int check(self) except -1 nogil

    cdef void _sift_up(self, int32_t hole, TimedSlot entry) noexcept nogil
    cdef void _sift_down(self, int32_t hole, TimedSlot entry) noexcept nogil
