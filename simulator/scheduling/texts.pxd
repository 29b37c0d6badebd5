"""Who waits by tokens so far and length of text, for a policy that looks for the greatest gain; see texts.pyx."""
from libc.stdint cimport int16_t, int32_t, int64_t

from simulator.core.index_heap cimport Waiting
from simulator.scheduling.ranked cimport RequestRanking

cdef enum:
    MOST_SHELVES = 256
    MOST_PARTS = 16             # of a shelf
    MOST_CHANGES = 16


cdef struct Part:               # of a shelf: those with as many tokens so far, or about as many
    Waiting* heap               # [size] the shortest text first; below i: 2i + 1, 2i + 2
    int32_t size, room
    int32_t least_tokens        # nobody has fewer
    bint is_exact               # all have `least_tokens`
    bint is_alike               # and came at the same instant: they gain the same
    int64_t earliest_ns         # nobody came before, nor after; of those that are here and have been lately
    int64_t latest_ns


cdef struct Shelf:              # the same of its parts
    int32_t size
    int32_t place               # in `occupied`, if there is somebody
    int32_t num_parts, part_tokens
    int32_t least_tokens
    int64_t least_text          # nobody's is shorter
    int64_t earliest_ns
    int64_t latest_ns


cdef struct Spot:               # of one that waits
    int32_t place               # in the heap, from 1; 0: it is not there
    int16_t shelf, part


cdef class Texts(RequestRanking):
    cdef Shelf[MOST_SHELVES] shelves    # by tokens
    cdef int32_t[MOST_SHELVES] occupied     # [num_occupied] shelves with somebody
    cdef Part* parts                    # [MOST_SHELVES, MOST_PARTS]
    cdef Spot* _spots                   # [row]
    cdef int32_t num_occupied
    cdef int32_t[MOST_CHANGES] changes  # [num_changes] rows that came, and ~rows that left, since that was set to 0
    cdef int32_t num_changes            # beyond MOST_CHANGES: not all are noted

    cdef inline const Part* part(self, int32_t shelf, int32_t i) noexcept nogil:
        return &self.parts[shelf * MOST_PARTS + i]

    # Is a row looked for?
    cdef inline bint has(self, int32_t row) noexcept nogil:
        return self._spots[row].place > 0

    # One that waits is looked for no more, or again.
    cdef int put(self, int32_t row) except -1 nogil
    cdef void lift(self, int32_t row) noexcept nogil

    cdef inline void _note(self, int32_t change) noexcept nogil:
        if self.num_changes < MOST_CHANGES:
            self.changes[self.num_changes] = change
        self.num_changes += self.num_changes <= MOST_CHANGES

    cdef int32_t _shelf_of(self, int32_t tokens) noexcept nogil
    cdef void _sift(self, Part* part, int32_t hole, const Waiting* entry) noexcept nogil
    cdef inline void _set(self, Part* part, int32_t place, const Waiting* entry) noexcept nogil:
        part.heap[place] = entry[0]
        self._spots[entry.row].place = place + 1

    cdef void _widen(self, Shelf* shelf, Part* part, int64_t arrival_ns, int64_t text) noexcept nogil
    cdef void _find_least_text(self, int32_t shelf) noexcept nogil
    cpdef int check(self) except -1
