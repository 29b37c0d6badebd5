"""`token_bucket`: a token for each request in flight, returned at its end, and further ones by the second."""
cimport cython
from libc.stdint cimport int32_t, int64_t
from typing import Annotated

from simulator.admission.saturation.base cimport SaturationDetector

import msgspec
from msgspec import Meta


class TokensInFlightParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Saturation = 1 - tokens / capacity; 1 while there is less than one token.

    A request takes a token when it is sent to a replica, and returns it when it leaves the replica. The bucket is full
    at first, and never holds more than capacity. Source: SGLang's model gateway, sgl-model-gateway/src/core/
    token_bucket.rs at 7c552a9f.
    """

    capacity: Annotated[int, Meta(ge=1, le=2**31 - 1, extra={"unit": "requests"}, description=(
        "tokens of the full bucket, the requests in flight without refill; SGLang: max_concurrent_requests"))]
    refill_per_s: Annotated[float, Meta(ge=0, le=1e9, extra={"unit": "requests/s"}, description=(
        "tokens that are added beside those that are returned; SGLang: rate_limit_tokens_per_second"))] = 0.0


@cython.final
cdef class TokensInFlight(SaturationDetector):
    """A bucket of tokens before all replicas, routable or not."""

    Parameters = TokensInFlightParameters

    cdef double _capacity, _refill_per_ns
    cdef double _tokens                 # after the last look, before the request that went through then
    cdef int64_t _dispatched, _left     # requests sent to replicas, and that left them, by then
    cdef int64_t _looked_ns

    def __init__(self, parameters, context):
        self._capacity = self._tokens = parameters.capacity
        self._refill_per_ns = parameters.refill_per_s / 1e9

    cdef double saturation(self, int64_t now_ns) except -1.0 nogil:
        # Between two looks a token is taken by the request that the first look lets through, at once; all others are
        # added, which may be done together: min(c, min(c, t + a) + b) = min(c, t + a + b) with a, b >= 0.
        cdef int64_t dispatched = 0, in_flight = 0, left
        cdef int32_t i
        for i in range(self.view.num_replicas):
            dispatched += self.view.accounts[i].dispatched
            in_flight += self.view.accounts[i].in_flight
        left = dispatched - in_flight
        self._tokens += self._dispatched - dispatched + left - self._left
        self._tokens = min(self._capacity, self._tokens + (now_ns - self._looked_ns) * self._refill_per_ns)
        self._dispatched, self._left, self._looked_ns = dispatched, left, now_ns
        return 1.0 - self._tokens / self._capacity if self._tokens >= 1.0 else 1.0
