"""Queue of events: slots in order of time, any of which can be moved."""
cimport cython
from libc.stdint cimport int32_t


cdef struct Timed:
    double time_ns
    int32_t slot


@cython.final
cdef class TimeHeap:
    cdef Timed* _heap           # binary heap; children of i: 2i + 1, 2i + 2
    cdef int32_t* _position     # of each slot in it; -1: not there
    cdef readonly int32_t size
    cdef int32_t _room          # slots that it can hold: 0 .. _room - 1

    # Make room for slots below `slots`. -1 without memory, and nothing changed.
    cdef int reserve(self, int32_t slots) except -1 nogil

    # Add a slot, or move it to another time.
    cdef void put(self, int32_t slot, double time_ns) noexcept nogil

    # Remove and return the first slot; the heap must not be empty.
    cdef int32_t pop(self) noexcept nogil

    # The time of the first; infinity if empty.
    cdef double next_time(self) noexcept nogil

    # Forget every slot; keeps the memory.
    cdef void clear(self) noexcept nogil

    # Raise RuntimeError if a slot is earlier than its parent, or not at its position.
    cpdef int check(self) except -1 nogil

    cdef void _sift_up(self, int32_t hole, Timed entry) noexcept nogil
    cdef void _sift_down(self, int32_t hole, Timed entry) noexcept nogil
