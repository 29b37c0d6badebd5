"""The waiting queue under priority scheduling: rows in order of priority, arrival, then rank."""
cimport cython
from libc.stdint cimport int32_t, int64_t


cdef struct Waiting:
    int64_t arrival_ns
    int64_t priority            # lower is served first
    int32_t tie_rank            # settles equal priority and arrival; no two rows share one
    int32_t row                 # the request


cdef inline bint waits_before(const Waiting* a, const Waiting* b) noexcept nogil:
    if a.priority != b.priority:
        return a.priority < b.priority
    if a.arrival_ns != b.arrival_ns:
        return a.arrival_ns < b.arrival_ns
    return a.tie_rank < b.tie_rank


@cython.final
cdef class IndexHeap:
    cdef Waiting* _heap         # binary heap; children of i: 2i + 1, 2i + 2
    cdef readonly int32_t size
    cdef int32_t _room          # rows that fit before it must grow
    cdef int32_t* _places       # [rows] of each row in it, -1: it is not there; NULL: they are not known

    # Add a row that is not in it. -1 without memory, and nothing changed.
    cdef int push(self, int32_t row, int64_t priority, int64_t arrival_ns, int32_t tie_rank) except -1 nogil

    # The first row, still in it or taken out; -1 if empty.
    cdef int32_t top(self) noexcept nogil
    cdef int32_t pop(self) noexcept nogil

    # Remove a row wherever it is; 0, or -1 if it is not there. O(log size) where places are known; else O(size): only
    # a time-out takes a row from the middle.
    cdef int remove(self, int32_t row) noexcept nogil

    # Forget every row; keeps the memory.
    cdef void clear(self) noexcept nogil

    # The entry at a place, 0 .. size - 1.
    cdef inline const Waiting* at(self, int32_t place) noexcept nogil:
        return &self._heap[place]

    cdef inline void _set(self, int32_t place, const Waiting* entry) noexcept nogil:
        self._heap[place] = entry[0]
        if self._places != NULL:
            self._places[entry.row] = place

    cdef void _sift(self, int32_t hole, const Waiting* entry) noexcept nogil
    cdef void _take_out(self, int32_t hole) noexcept nogil
    cdef int _grow(self) except -1 nogil

    # Raise RuntimeError if a row is ordered before its parent, or is not at its recorded place.
    cpdef int check(self) except -1 nogil
