"""The place of the next token of each request."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memmove
cimport cython

from simulator.domain.tables cimport TokenRow

import numpy as np


cdef struct Place:
    int64_t* next               # where the next token goes
    int64_t* end                # end of the room of the request; both NULL: no room yet


@cython.final
cdef class TokenPlaces:
    """One stretch of memory for each request.

    num_requests : number of requests, all without any stretch.
    """
    cdef Place* _places         # [num_requests]
    cdef object _owner

    def __init__(self, int64_t num_requests):
        cdef int64_t[::1] view
        self._owner = np.zeros(2 * max(num_requests, 1), np.int64)
        view = self._owner
        self._places = <Place*>&view[0]

    def open(self, int64_t first, const int64_t[::1] room not None, int64_t[::1] memory not None):
        """Give the requests from `first` on room for `room` tokens each, side by side in `memory`."""
        cdef int64_t* place = &memory[0]
        cdef int64_t i
        for i in range(len(room)):
            self._places[first + i].next = place
            place += room[i]
            self._places[first + i].end = place

    def take(self, const TokenRow[::1] rows not None, int64_t first):
        """Write down the tokens of some messages from `first` on; return the end of the messages written.

        It stops before a message without room.
        """
        cdef int64_t i = first, number = len(rows)
        with nogil:
            while i < number and self._put(&rows[i]):
                i += 1
        return i

    cdef inline bint _put(self, const TokenRow* row) noexcept nogil:
        cdef Place* place = &self._places[row.request]
        cdef int32_t i
        if place.end - place.next < row.tokens:
            return False
        for i in range(row.tokens):
            place.next[i] = row.time_ns
        place.next += row.tokens
        return True

    def counts(self, const int64_t[::1] room not None):
        """Return how many tokens each request has, int64; `room`: of all requests, as given to `open`."""
        cdef int64_t i
        found = np.zeros(len(room), np.int64)
        cdef int64_t[::1] counts = found
        for i in range(len(room)):
            if self._places[i].next != NULL:
                counts[i] = room[i] - (self._places[i].end - self._places[i].next)
        return found

    def join(self, int64_t first, const int64_t[::1] room not None, int64_t[::1] memory not None):
        """Close the gaps in the memory of `open`; return whether the tokens of each are in order of time."""
        cdef int64_t* begin = &memory[0]
        cdef int64_t* end
        cdef int64_t* free = begin
        cdef int64_t i
        cdef bint is_in_order = True
        with nogil:
            for i in range(len(room)):
                end = self._places[first + i].next
                is_in_order &= is_sorted(begin, end)
                if free != begin:
                    memmove(free, begin, (end - begin) * sizeof(int64_t))
                free += end - begin
                begin += room[i]
        return is_in_order


cdef bint is_sorted(const int64_t* begin, const int64_t* end) noexcept nogil:
    cdef int64_t i
    cdef bint falls = False
    for i in range(end - begin - 1):
        falls |= begin[i + 1] < begin[i]
    return not falls
