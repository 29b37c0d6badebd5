"""`waiting_limit`: any replica with few waiting requests."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
cimport cython

from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.routing.parts.scored_router cimport ScoredRouter


class WaitingLimitParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Any of the replicas with at most `max_waiting` waiting requests.

    Without any, the request is refused. The gateway looks once a second: snapshot_refresh_interval_s = 1.
    Source: workload_aware of SGLang's gateway (sgl-project/sglang,
    sgl-model-gateway/src/policies/workload_aware@f318dbdb.rs).
    """

    max_waiting: Annotated[int, Meta(ge=0, le=2**31 - 1, extra={"unit": "requests"}, description=(
        "most waiting requests of a replica that gets another"))] = 10


@cython.final
cdef class WaitingLimit(ScoredRouter):
    """Any replica with few waiting requests."""

    Parameters = WaitingLimitParameters

    cdef int32_t _max_waiting

    def __init__(self, parameters, context):
        self._max_waiting = parameters.max_waiting
        self.view.wants_counts = True

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t i
        self.view.look(now_ns)
        for i in range(self.num_replicas):
            scores[i] = 0.0 if (self.view.accounts[i].is_routable
                                and self.view.states[i].waiting <= self._max_waiting) else -INFINITY
        return 0
