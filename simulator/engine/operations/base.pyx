"""What else happens to a cluster while it serves: failures, scaling, migration."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.core.event_queue cimport Event


cdef class Operation:
    """Base of all that acts on the cluster by its own events."""

    def __cinit__(self, *_, **__):
        self.kinds = ()

    cdef int start(self) except -1 nogil:
        return 0

    cdef int handle(self, const Event* event) except -1 nogil:
        return 0

    cdef int noticed(self, int32_t row, int64_t now_ns) except -1 nogil:
        return 0

    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil:
        return 0

    def report(self, run):
        """Add to the Run what there is to tell when all is over."""
