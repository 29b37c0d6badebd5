"""Revocations of requests in flight: their number by the lack of capacity, and their pace.

Source: llm-d-router, docs/flow-control-eviction.md at 88d2b9dd, and
pkg/epp/flowcontrol/controller/internal/reclamation.go at 442627f7.
"""
cimport cython
from libc.math cimport ceil

from simulator.core.clock cimport ns_from_s


@cython.final
cdef class Reclamation:
    """The state between decisions; no request is revoked at first.

    rule : domain.gateway.ReclamationRule.
    """

    def __init__(self, rule):
        self._grace_ns, self._max_evictions = ns_from_s(rule.grace_s), rule.max_evictions

    cdef bint is_open(self, int64_t now_ns) noexcept nogil:
        return self._num_ending == 0 and now_ns >= self._rests_until_ns

    cdef void decide(self, double saturation, double ceiling, int32_t in_flight) noexcept nogil:
        cdef double count = ceil((saturation - ceiling) / (saturation / in_flight))
        self.due = <int32_t>max(1.0, min(count, <double>self._max_evictions))

    cdef void revoke(self) noexcept nogil:
        self.due -= 1
        self._num_ending += 1

    cdef void stop(self) noexcept nogil:
        self.due = 0

    cdef void ended(self, int64_t now_ns) noexcept nogil:
        self._num_ending -= 1
        self._rests_until_ns = now_ns + self._grace_ns
