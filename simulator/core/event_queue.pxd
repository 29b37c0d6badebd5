"""The global event queue: events leave in order of time, then priority, then insertion."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.core.clock cimport NEVER_NS
from simulator.core.heap cimport Event


@cython.final
cdef class EventQueue:
    cdef Event* _heap
    cdef readonly int64_t size  # events in it
    cdef int64_t _room          # events that fit before it must grow
    cdef int64_t _sequence      # events pushed so far

    # Add an event. At equal times the lower `priority` (0 .. 32767) goes first. -1 without memory, and nothing changed.
    cdef int push(self, int64_t time_ns, int priority, int32_t kind, int32_t replica, int64_t payload) except -1 nogil

    # Remove and return the first event. The queue must not be empty.
    cdef Event pop(self) noexcept nogil

    # The first event, valid until the next push or pop; NULL if empty.
    cdef inline const Event* top(self) noexcept nogil:
        return self._heap if self.size > 0 else NULL

    # Its time; NEVER_NS if empty.
    cdef inline int64_t next_time(self) noexcept nogil:
        return self._heap[0].time_ns if self.size > 0 else NEVER_NS

    # When the last event of a kind that concerns this replica happens; -1: there is none. O(events).
    cdef int64_t last_ns(self, int32_t kind, int32_t replica) noexcept nogil

    # Forget every event and start the sequence again; keeps the memory.
    cdef void clear(self) noexcept nogil

    # Raise RuntimeError if an event is ordered before its parent.
    cpdef int check(self) except -1 nogil
