"""`concurrency`: requests in flight, against as many as there may be."""
cimport cython
from libc.stdint cimport int32_t, int64_t
from typing import Annotated

from simulator.admission.saturation.base cimport SaturationDetector

import msgspec
from msgspec import Meta


class ConcurrencyParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Saturation = requests in flight / (replicas x max_concurrency).

    Source: llm-d's inference gateway, concurrency detector, as BLIS (inference-sim) has it.
    """

    max_concurrency: Annotated[int, Meta(ge=1, le=2**31 - 1, description=(
        "requests in flight per replica, waiting and running"))] = 100


@cython.final
cdef class Concurrency(SaturationDetector):
    """Requests in flight, exact since the gateway counts them itself."""

    Parameters = ConcurrencyParameters

    cdef double _max_concurrency

    def __init__(self, parameters, context):
        self._max_concurrency = parameters.max_concurrency

    cdef double saturation(self, int64_t now_ns) except -1.0 nogil:
        cdef int64_t in_flight = 0
        cdef int32_t i, num_routable = 0
        for i in range(self.view.num_replicas):
            if self.view.accounts[i].is_routable:
                num_routable += 1
                in_flight += self.view.accounts[i].in_flight
        return in_flight / (num_routable * self._max_concurrency) if num_routable else 1.0
