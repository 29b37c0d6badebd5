"""Revocations of requests in flight: their number by the lack of capacity, and their pace."""
cimport cython
from libc.stdint cimport int32_t, int64_t


@cython.final
cdef class Reclamation:
    cdef int64_t _grace_ns              # after the last end of a revoked request
    cdef int64_t _rests_until_ns        # no decision before
    cdef int32_t _max_evictions         # of a decision
    cdef int32_t _num_ending            # revoked requests that are still at their replicas
    cdef readonly int32_t due           # requests that the last decision has yet to revoke

    # May a decision be made: have all revoked requests left, and is the grace over?
    cdef bint is_open(self, int64_t now_ns) noexcept nogil

    # Decide how many of `in_flight` requests are revoked for a band that `ceiling` > 0 holds back.
    cdef void decide(self, double saturation, double ceiling, int32_t in_flight) noexcept nogil

    # A request is revoked; no further request may be; a revoked request has left its replica.
    cdef void revoke(self) noexcept nogil
    cdef void stop(self) noexcept nogil
    cdef void ended(self, int64_t now_ns) noexcept nogil
