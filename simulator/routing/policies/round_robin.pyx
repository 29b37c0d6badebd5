"""`round_robin`: one replica after the other.

`split_wise` is its name in vidur-alibabacloud (SimAI cef83f9d): round robin over the prefill replicas, and over the
decode replicas, both chosen when a request arrives. Source: its
vidur/scheduler/global_scheduler/splitwise_global_scheduler.py.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.routing.base cimport Router

import msgspec


class RoundRobinParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request i, in order of arrival, goes to replica i mod n. Source: the definition."""


@cython.final
cdef class RoundRobin(Router):
    """One replica after the other; closed ones are passed over."""

    Parameters = RoundRobinParameters

    cdef int32_t _next          # the replica that gets the next request, if it is open

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t chosen = self._next, passed_over = 0
        while not self.view.accounts[chosen].is_routable:
            chosen = chosen + 1 if chosen + 1 < self.num_replicas else 0
            passed_over += 1
            if passed_over == self.num_replicas:
                return -1
        self._next = chosen + 1 if chosen + 1 < self.num_replicas else 0
        return chosen
