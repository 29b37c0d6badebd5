"""Base of queues in front of a router."""
from libc.stdint cimport int32_t, int64_t


cdef enum Offered:
    GOES = 0                    # it is to be routed at once
    WAITS = 1
    REFUSED = 2                 # there is no room


cdef class RouterQueue:
    cdef readonly int64_t size          # requests that wait

    # An admitted request comes: Offered.
    cdef int offer(self, int32_t row, int64_t now_ns) except -1 nogil

    # Take out the request that is to be routed now; -1: nothing waits, or the replicas are busy.
    cdef int32_t next(self, int64_t now_ns) except -2 nogil

    # Take out a request with a client that gave up, if it waits here.
    cdef int remove(self, int32_t row) except -1 nogil
