"""What else happens to a cluster while it serves: failures, scaling, migration."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.core.event_queue cimport Event


cdef class Operation:
    cdef readonly tuple kinds           # of the events it handles, EventKind; set in __init__

    # The clock is at 0 and nothing has happened: push the first events.
    cdef int start(self) except -1 nogil

    # One of its events is due; replicas are up to date. Requests that leave meanwhile are told by `ended` afterwards.
    cdef int handle(self, const Event* event) except -1 nogil

    # A prefill leg has left its replica; or one has made room for KV of a request, which is to be read. Told to the one
    # operation that hands requests over.
    cdef readonly bint hands_over
    cdef int noticed(self, int32_t row, int64_t now_ns) except -1 nogil

    # The last leg of a request has ended and it has left the cluster, whoever was responsible: LEG_COMPLETED, or
    # LEG_ENDED and its status says why. One that was refused at a gateway never had a leg.
    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil
