"""Where admitted requests wait until a replica can take them."""
from libc.stdint cimport int32_t, int64_t


cdef enum OfferOutcome:
    QUEUED = 0                  # it waits; `evicted` is -1, or the row that had to go for it
    REFUSED = 1                 # no room


cdef class GatewayQueue:
    cdef readonly int64_t size          # rows that wait
    cdef readonly int64_t ttl_ns        # a request that waited so long is removed; 0: never
    cdef readonly int64_t tick_ns       # a dispatch is tried every so often while rows wait; 0: no ticks
    cdef readonly bint tries_on_departure       # a dispatch is tried when a request leaves a replica
    cdef readonly bint tries_until_held         # at each occasion as many as go; else one
    cdef readonly int32_t evicted       # by the last `offer`, to make room; -1: none
    cdef readonly int32_t recalled      # by the last `next`: a request in flight that is to be taken off its replica and
                                        # lost, so that more urgent ones pass; -1: none

    # A request comes in; OfferOutcome.
    cdef int offer(self, int32_t row, int64_t now_ns) except -1 nogil

    # Take out the row that is to be routed now; -1: none, since nothing waits or the replicas are saturated.
    cdef int32_t next(self, int64_t now_ns) except -2 nogil

    # Take out a row that timed out or was recalled; 1 if it was there.
    cdef bint remove(self, int32_t row) noexcept nogil

    # A request that went through here was sent to a replica; it is gone.
    cdef int sent(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int left(self, int32_t row, int64_t now_ns) except -1 nogil
