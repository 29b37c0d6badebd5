"""Assignment of requests to the instances of a gateway."""
from libc.stdint cimport int8_t, int32_t
cimport cython

from simulator.core.draws cimport Draws
from simulator.domain.request cimport Demand


cdef enum Way:
    ROUND_ROBIN
    RANDOM
    SESSION


@cython.final
cdef class Assignment:
    cdef readonly int32_t count         # instances
    cdef readonly int32_t each          # instances of a group: group g has g x each .. (g + 1) x each - 1
    cdef readonly object instances      # int32 (requests,): instance of each; -1: none yet
    cdef readonly object groups         # int32 (requests,): group of each, 0 at first
    cdef int32_t* _instances            # borrowed from `instances` and `groups`
    cdef int32_t* _groups
    cdef const Demand* _demands
    cdef object _owner                  # the array that `_demands` borrows from
    cdef int8_t _way                    # Way
    cdef int32_t* _next                 # [group] instance of the next request, in turn
    cdef Draws _draws

    # Return the instance of a request, which keeps it.
    cdef inline int32_t of(self, int32_t row) noexcept nogil:
        if self._instances[row] < 0:
            self._instances[row] = self._assign(row)
        return self._instances[row]

    cdef inline int32_t group_of(self, int32_t row) noexcept nogil:
        return self._groups[row]

    # Send a request to a group; `of` will choose an instance of it anew.
    cdef inline void send(self, int32_t row, int32_t group) noexcept nogil:
        self._groups[row], self._instances[row] = group, -1

    cdef int32_t _assign(self, int32_t row) noexcept nogil
