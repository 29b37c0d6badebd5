"""Actions on a cluster besides serving: failures, scaling, migration."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.core.event_queue cimport Event


cdef class Operation:
    """Base of the parts that act on the cluster by events of their own."""

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
        """Add results to the Run at the end."""
