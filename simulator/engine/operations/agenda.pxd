"""Actions at rare events: calls into Python."""
from libc.stdint cimport int64_t
cimport cython

from simulator.core.event_queue cimport Event
from simulator.engine.fleet.fleet cimport Fleet


@cython.final
cdef class Agenda:
    cdef Fleet _fleet
    cdef dict _actions          # payload of an event -> callable, called with the time in ns
    cdef int64_t _count         # number of actions ever noted

    # An event is due.
    cdef int act(self, const Event* event) except -1 nogil
