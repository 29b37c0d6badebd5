"""`prefix_threshold`: by cached prefixes among replicas that are not much busier than the mean."""
from libc.math cimport INFINITY, sqrt
from libc.stdint cimport INT32_MAX, int32_t, int64_t
cimport cython

from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.routing.parts.prefix_router cimport PrefixRouter

from simulator.routing.parts.prefix_router import Capacity


class PrefixThresholdParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The load is the requests in flight, n.

    If most - least > imbalance_requests: the least loaded. Else, of the replicas that were sent the first block of the
    prompt and have n <= mean + stddev_factor x standard deviation over all: the one that was sent most of it, the
    least loaded of several. If there is none: the least loaded.
    Source: prefix-cache of vllm-project/aibrix (pkg/plugins/gateway/algorithms/prefix_cache.go).
    """

    imbalance_requests: Annotated[int, Meta(ge=0, le=2**30, description=(
        "difference of requests in flight above which prefixes do not count"))] = 8
    stddev_factor: Annotated[float, Meta(ge=0, le=1e6, description=(
        "standard deviations above the mean that a replica may have"))] = 1.0
    capacity_blocks: Capacity = 200_000


@cython.final
cdef class PrefixThreshold(PrefixRouter):
    """The replica that was sent this prefix, if it is not busier than most."""

    Parameters = PrefixThresholdParameters

    cdef int32_t _imbalance
    cdef double _factor

    def __init__(self, parameters, context):
        self._imbalance, self._factor = parameters.imbalance_requests, parameters.stddev_factor
        self.reads_state = self.has_scores = True

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        self.score(row, now_ns, self.preference)
        return self.pick_preferred()

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t least = INT32_MAX, most = 0, best = 0, num_open = 0, in_flight, i
        cdef double total = 0.0, squares = 0.0, mean, limit
        for i in range(self.num_replicas):
            if self.view.accounts[i].is_routable:
                in_flight = self.view.accounts[i].in_flight
                least, most = min(least, in_flight), max(most, in_flight)
                total += in_flight
                squares += <double>in_flight * in_flight
                num_open += 1
        mean = total / max(num_open, 1)
        limit = mean + self._factor * sqrt(max(squares / max(num_open, 1) - mean * mean, 0.0))
        if most - least <= self._imbalance and self.index.match(row, self.matched) > 0:
            for i in range(self.num_replicas):
                if self.view.accounts[i].is_routable and self.view.accounts[i].in_flight <= limit:
                    best = max(best, self.matched[i])
        for i in range(self.num_replicas):
            if self.view.accounts[i].is_routable and (best == 0 or (
                    self.matched[i] == best and self.view.accounts[i].in_flight <= limit)):
                scores[i] = -self.view.accounts[i].in_flight
            else:
                scores[i] = -INFINITY
        return 0
