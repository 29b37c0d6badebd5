"""What else happens to a cluster while it serves: failures, scaling, migration."""
from libc.stdint cimport int32_t, int64_t

from simulator.core.event_queue cimport Event


cdef class Operation:
    cdef readonly tuple kinds           # of the events it handles, EventKind; set in __init__

    # The clock is at 0 and nothing has happened: push the first events.
    cdef int start(self) except -1 nogil

    # One of its events is due; replicas are up to date. Requests that leave meanwhile are told by `gone` afterwards.
    cdef int handle(self, const Event* event) except -1 nogil

    # A request has left the cluster, whoever was responsible.
    cdef int gone(self, int32_t row, int64_t now_ns) except -1 nogil
