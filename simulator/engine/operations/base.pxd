"""Actions on a cluster besides serving: failures, scaling, migration."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.core.event_queue cimport Event


cdef class Operation:
    cdef readonly tuple kinds           # of the events it handles, EventKind; set in __init__

    # Push the first events; the clock is at 0 and nothing has happened.
    cdef int start(self) except -1 nogil

    # Handle one of its events; replicas are up to date. Requests that leave meanwhile are passed to `ended` afterwards.
    cdef int handle(self, const Event* event) except -1 nogil

    # A prefill leg has left its replica, or a replica has allocated blocks for a request's KV, which can be sent now.
    # Called on the one operation that `continues` requests at other replicas.
    cdef readonly bint continues
    cdef int noticed(self, int32_t row, int64_t now_ns) except -1 nogil

    # A request's last leg has ended and it has left the cluster, for any reason: LEG_COMPLETED, or LEG_ENDED with the
    # reason in its status. A request that was refused at a gateway has no leg.
    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil
