"""Waiting requests by tokens so far and length of text, for a search of the greatest gain; see texts.pyx."""
from libc.stdint cimport int16_t, int32_t, int64_t

from simulator.core.heap cimport Placed
from simulator.scheduling.ranked cimport RequestRanking

cdef enum:
    MOST_SHELVES = 256
    MOST_PARTS = 16             # of a shelf
    MOST_CHANGES = 16


cdef struct Part:               # part of a shelf: requests with equal or similar numbers of tokens so far
    Placed* heap                # [size] the shortest text first; below i: 2i + 1, 2i + 2
    int32_t size, room
    int32_t least_tokens        # lower bound of tokens so far
    bint is_exact               # all have `least_tokens`
    bint is_alike               # all also arrived at one instant: they gain alike
    int64_t earliest_ns         # bounds of arrivals; of present requests and of recent ones
    int64_t latest_ns


cdef struct Shelf:              # the fields of Part over all its parts
    int32_t size
    int32_t place               # index in `occupied`, if it is not empty
    int32_t num_parts, part_tokens
    int32_t least_tokens
    int64_t least_text          # no text is shorter
    int64_t earliest_ns
    int64_t latest_ns


cdef struct Spot:               # the heap of a waiting request
    int16_t shelf, part


cdef class Texts(RequestRanking):
    cdef Shelf[MOST_SHELVES] shelves    # by tokens so far
    cdef int32_t[MOST_SHELVES] occupied     # [num_occupied] shelves that are not empty
    cdef Part* parts                    # [MOST_SHELVES, MOST_PARTS]
    cdef Spot* _spots                   # [row]
    cdef int32_t* _places               # [row] in the heap of its spot; -1: it is on no shelf
    cdef int32_t num_occupied
    cdef int32_t[MOST_CHANGES] changes  # [num_changes] rows added, and ~rows removed, since num_changes was set to 0
    cdef int32_t num_changes            # above MOST_CHANGES: changes are incomplete

    cdef inline const Part* part(self, int32_t shelf, int32_t i) noexcept nogil:
        return &self.parts[shelf * MOST_PARTS + i]

    # Is a row on a shelf?
    cdef inline bint has(self, int32_t row) noexcept nogil:
        return self._places[row] >= 0

    # Put a waiting row on its shelf; take it off.
    cdef int put(self, int32_t row) except -1 nogil
    cdef void lift(self, int32_t row) noexcept nogil

    cdef inline void _note(self, int32_t change) noexcept nogil:
        if self.num_changes < MOST_CHANGES:
            self.changes[self.num_changes] = change
        self.num_changes += self.num_changes <= MOST_CHANGES

    cdef int32_t _shelf_of(self, int32_t tokens) noexcept nogil
    cdef void _widen(self, Shelf* shelf, Part* part, int64_t arrival_ns, int64_t text) noexcept nogil
    cdef void _find_least_text(self, int32_t shelf) noexcept nogil
    cpdef int check(self) except -1
