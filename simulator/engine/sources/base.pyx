"""Base of the sources of requests: the next request, and its arrival time."""
from simulator.core.clock cimport NEVER_NS
from simulator.core.errors cimport broken


cdef class Source(Operation):
    """Base of all sources; this one has no requests."""

    def __cinit__(self, *_, **__):
        self.next_ns = NEVER_NS

    cdef int32_t take(self) except -1 nogil:
        return broken("Source: nobody comes")
