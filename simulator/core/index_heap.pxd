"""Indices (rows, slots) in order of three keys: each can be moved or removed at any time."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.core.clock cimport NEVER_NS
from simulator.core.heap cimport Placed


@cython.final
cdef class IndexHeap:
    cdef Placed* _heap
    cdef readonly int32_t size
    cdef int64_t _room          # entries that fit before it must grow
    cdef int32_t* _places       # [_num_places] of each index in it, -1: it is not there; NULL: they are not known
    cdef int32_t _num_places

    # Record the places of indices below `count`, and reserve room for all. -1 without memory, and nothing changed.
    cdef int reserve(self, int32_t count) except -1 nogil

    # Add an index that is not in it. -1 without memory, and nothing changed.
    cdef int push(self, int32_t index, int64_t key, int64_t tie, int32_t rank) except -1 nogil

    # Add an index, or move it to another key; `tie` counts only when it is added. It must have been reserved.
    cdef void put(self, int32_t index, int64_t key, int64_t tie) noexcept nogil

    # The first index, still in it or taken out; -1 if empty.
    cdef inline int32_t top(self) noexcept nogil:
        return self._heap[0].index if self.size > 0 else -1

    cdef int32_t pop(self) noexcept nogil

    # The key of the first, if it is a time; NEVER_NS if empty.
    cdef inline int64_t next_ns(self) noexcept nogil:
        return self._heap[0].key if self.size > 0 else NEVER_NS

    # Remove an index from any place; 0, or -1 if it is absent. O(log size) where places are known, else O(size): only a
    # time-out removes a row from the middle.
    cdef int remove(self, int32_t index) noexcept nogil

    # Forget every index; keeps the memory.
    cdef void clear(self) noexcept nogil

    # The entry at a place, 0 .. size - 1; its children are at 2 * place + 1 and 2 * place + 2.
    cdef inline const Placed* at(self, int32_t place) noexcept nogil:
        return &self._heap[place]

    cdef void _take_out(self, int32_t hole) noexcept nogil

    # Raise RuntimeError if an index is ordered before its parent, or is not at its recorded place.
    cpdef int check(self) except -1 nogil
