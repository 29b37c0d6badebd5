"""`session`: a conversation stays where it began."""
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.core.draws cimport mix
from simulator.core.sliding_sums cimport SlidingSums
from simulator.routing.base cimport Router
from simulator.routing.parts.hash_ring cimport HashRing
from simulator.routing.parts.least_load cimport LeastLoad


class SessionParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session goes to the owner of its hash on a ring.

    When that replica is closed, to the next on the ring.
    Source: SessionRouter of vllm-project/production-stack at a6c01db0 (src/vllm_router/routers/routing_logic.py), which
    sends requests without a session as otherwise = "lowest_rate" does.
    """

    otherwise: Annotated[Literal["tenant", "least_loaded", "lowest_rate"], Meta(description=(
        "key of a request without session: tenant: its tenant, without tenant the request itself; least_loaded: it "
        "goes to the least loaded replica; lowest_rate: to the first that got the fewest requests of late"))] = "tenant"
    rate_window_s: Annotated[float, Meta(gt=0, le=1e6, description=(
        "window over which lowest_rate counts requests"))] = 60.0
    points_per_replica: Annotated[int, Meta(ge=1, le=4096, description=(
        "points of each replica on the ring; more spread the sessions more evenly"))] = 160


@cython.final
cdef class Session(Router):
    """The replica that owns a request's session."""

    Parameters = SessionParameters

    cdef HashRing _ring
    cdef LeastLoad _least       # None: not needed, like _rate
    cdef SlidingSums _rate      # requests sent, by replica

    def __init__(self, parameters, context):
        self._ring = HashRing(self.num_replicas, parameters.points_per_replica)
        if parameters.otherwise == "least_loaded":
            self._least = LeastLoad(self.view, "requests")
            self.reads_state = True
        elif parameters.otherwise == "lowest_rate":
            self._rate = SlidingSums(self.num_replicas, parameters.rate_window_s)

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef uint64_t code
        if self.demands[row].session >= 0:
            code = <uint64_t>self.demands[row].session
        elif self._least is not None:
            self._least.refresh(now_ns)
            return self._least.pick(self.draws)
        elif self._rate is not None:
            return self._first_of_lowest_rate(now_ns)
        elif self.demands[row].tenant >= 0:
            code = (<uint64_t>1 << 32) + <uint64_t>self.demands[row].tenant
        else:
            code = (<uint64_t>2 << 32) + <uint64_t>row
        return self._ring.owner(mix(code + 1), self.view, INT32_MAX)

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        if self._rate is not None:
            self._rate.advance(now_ns)
            self._rate.add(replica, 1.0)
        return self._least.sent(replica) if self._least is not None else 0

    cdef int32_t _first_of_lowest_rate(self, int64_t now_ns) noexcept nogil:
        cdef int32_t best = -1, i
        self._rate.advance(now_ns)
        for i in range(self.num_replicas):
            if self.view.accounts[i].is_routable and (best < 0 or self._rate.sums[i] < self._rate.sums[best]):
                best = i
        return best

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return self._least.left(replica) if self._least is not None else 0
