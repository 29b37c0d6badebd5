"""Requests and tokens of each replica in the current minute of the clock, and their limits.

Source of the window: LiteLLM 1.110.2, with usage counters named by the minute of the clock
(litellm/router_strategy/lowest_tpm_rpm_v2.py).
"""
from libc.math cimport INFINITY
from libc.stdlib cimport calloc, free
from libc.string cimport memset

import numpy as np

from simulator.routing.parts.quotas import column

cdef int64_t MINUTE_NS = 60000000000


cdef class MinuteUsage:
    """Counters of the replicas of a RoutingContext, with the limits of its quotas."""

    def __cinit__(self, context):
        cdef double[::1] most_tokens, most_requests
        cdef int32_t i
        pool_of = np.asarray(context.view.account_array["pool"])
        most_tokens = column(context.quotas, "tpm", pool_of, INFINITY)
        most_requests = column(context.quotas, "rpm", pool_of, INFINITY)
        self.num_replicas = context.view.num_replicas
        self.tokens = <int64_t*>calloc(self.num_replicas, sizeof(int64_t))
        self.requests = <int64_t*>calloc(self.num_replicas, sizeof(int64_t))
        self._most_tokens = <double*>calloc(self.num_replicas, sizeof(double))
        self._most_requests = <double*>calloc(self.num_replicas, sizeof(double))
        if (self.tokens == NULL or self.requests == NULL or self._most_tokens == NULL
                or self._most_requests == NULL):
            raise MemoryError()
        for i in range(self.num_replicas):
            self._most_tokens[i], self._most_requests[i] = most_tokens[i], most_requests[i]

    def __dealloc__(self):
        free(self.tokens)
        free(self.requests)
        free(self._most_tokens)
        free(self._most_requests)

    cdef void advance(self, int64_t now_ns) noexcept nogil:
        if now_ns // MINUTE_NS != self._minute:
            self._minute = now_ns // MINUTE_NS
            self.clear()

    cdef void clear(self) noexcept nogil:
        memset(self.tokens, 0, self.num_replicas * sizeof(int64_t))
        memset(self.requests, 0, self.num_replicas * sizeof(int64_t))
