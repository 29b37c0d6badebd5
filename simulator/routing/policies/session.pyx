"""`session`: a conversation stays where it began."""
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.core.draws cimport mix
from simulator.routing.base cimport Router
from simulator.routing.parts.hash_ring cimport HashRing
from simulator.routing.parts.least_load cimport LeastLoad


class SessionParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session goes to the owner of its hash on a ring.

    When that replica is closed, to the next on the ring.
    Source: SessionRouter of vllm-project/production-stack (src/vllm_router/routers/routing_logic.py), which sends
    requests without a session where the rate is lowest; here that is where the fewest requests are in flight.
    """

    otherwise: Annotated[Literal["tenant", "least_loaded"], Meta(description=(
        "key of a request without session: tenant: its tenant, without tenant the request itself; least_loaded: it "
        "goes to the least loaded replica"))] = "tenant"
    points_per_replica: Annotated[int, Meta(ge=1, le=4096, description=(
        "points of each replica on the ring; more spread the sessions more evenly"))] = 160


@cython.final
cdef class Session(Router):
    """The replica that owns a request's session."""

    Parameters = SessionParameters

    cdef HashRing _ring
    cdef LeastLoad _least       # None: not needed

    def __init__(self, parameters, context):
        self._ring = HashRing(self.num_replicas, parameters.points_per_replica)
        if parameters.otherwise == "least_loaded":
            self._least = LeastLoad(self.view, "requests")
            self.reads_state = True

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef uint64_t code
        if self.demands[row].session >= 0:
            code = <uint64_t>self.demands[row].session
        elif self._least is not None:
            self._least.refresh(now_ns)
            return self._least.pick(self.draws)
        elif self.demands[row].tenant >= 0:
            code = (<uint64_t>1 << 32) + <uint64_t>self.demands[row].tenant
        else:
            code = (<uint64_t>2 << 32) + <uint64_t>row
        return self._ring.owner(mix(code + 1), self.view, INT32_MAX)

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return self._least.sent(replica) if self._least is not None else 0

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return self._least.left(replica) if self._least is not None else 0
