"""`concurrency`: requests in flight, against as many as there may be."""
cimport cython
from libc.stdint cimport int32_t, int64_t
from typing import Annotated, Literal

from simulator.admission.saturation.base cimport SaturationDetector

import msgspec
from msgspec import Meta


class ConcurrencyParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Saturation = requests in flight / (replicas x max_concurrency).

    With mode = "tokens": prompt tokens in flight / (replicas x max_tokens); hybrid: the mean over replicas of the
    larger of both ratios. Source: llm-d's inference gateway, concurrency detector, as BLIS (inference-sim) has it; the
    modes of llm-d-router ebab6879.
    """

    mode: Annotated[Literal["requests", "tokens", "hybrid"], Meta(description=(
        "numbers that make a replica full: requests in flight, their prompt tokens, or the larger share of either"
    ))] = "requests"
    max_concurrency: Annotated[int, Meta(ge=1, le=2**31 - 1, description=(
        "requests in flight per replica, waiting and running"))] = 100
    max_tokens: Annotated[int, Meta(ge=1, le=2**40, description="prompt tokens in flight per replica")] = 1_000_000


@cython.final
cdef class Concurrency(SaturationDetector):
    """Requests or tokens in flight, exact since the gateway counts them itself."""

    Parameters = ConcurrencyParameters

    cdef double _max_concurrency, _max_tokens
    cdef bint _has_requests, _has_tokens

    def __init__(self, parameters, context):
        self._max_concurrency, self._max_tokens = parameters.max_concurrency, parameters.max_tokens
        self._has_requests, self._has_tokens = parameters.mode != "tokens", parameters.mode != "requests"

    cdef double saturation(self, int64_t now_ns) except -1.0 nogil:
        cdef int64_t in_flight = 0, tokens = 0
        cdef double shares = 0.0
        cdef int32_t i, num_routable = 0
        for i in range(self.view.num_replicas):
            if self.view.accounts[i].is_routable:
                num_routable += 1
                in_flight += self.view.accounts[i].in_flight
                tokens += self.view.accounts[i].in_flight_tokens
                shares += max(self.view.accounts[i].in_flight / self._max_concurrency,
                              <double>self.view.accounts[i].in_flight_tokens / self._max_tokens)
        if num_routable == 0:
            return 1.0
        if self._has_requests and self._has_tokens:
            return shares / num_routable
        if self._has_tokens:
            return <double>tokens / (num_routable * self._max_tokens)
        return in_flight / (num_routable * self._max_concurrency)
