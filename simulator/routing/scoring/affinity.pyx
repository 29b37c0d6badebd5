"""Scorers by the earlier replicas of a session or an adapter."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.routing.scoring.base cimport Scorer


class SessionAffinityParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score 1 for the replica that got the last request of the session, 0 for others.

    Source: llm-d's session-affinity-scorer.
    """


@cython.final
cdef class SessionAffinity(Scorer):
    """The replica that served the session last is better."""

    Parameters = SessionAffinityParameters

    cdef int32_t* _last         # [session] replica + 1; 0: none yet

    def __cinit__(self, parameters, context):
        num_sessions = int(context.workload.demands["session"].max(initial=-1)) + 1
        self._last = <int32_t*>calloc(num_sessions + 1, sizeof(int32_t))
        if self._last == NULL:
            raise MemoryError()

    def __init__(self, parameters, context):
        self.is_per_request = True

    def __dealloc__(self):
        free(self._last)

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t session = self.demands[row].session
        if session < 0 or self._last[session] == 0:
            return 0
        memset(self.values, 0, self.num_replicas * sizeof(double))
        self.values[self._last[session] - 1] = 1.0
        return 1

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        if self.demands[row].session >= 0:
            self._last[self.demands[row].session] = replica + 1
        return 0


class LoraAffinityParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score replicas by whether they hold the adapter of the request.

    A request without one scores 1 everywhere. With [engine.lora] replicas report the loaded adapters. Without it, and
    for tiers, the gateway uses its own record: a replica holds the `max_loras` adapters that it was sent last.
    resident: 1 if it holds the adapter, else 0 (all 1 if none does); source: BLIS's lora-affinity. tiers: 1 if a
    request with the adapter is in flight there, 0.8 if fewer than `max_loras` adapters are in flight, 0.6 if it is
    held without being in flight, else 0; source: llm-d's lora-affinity-scorer (active, room, waiting, none).
    """

    rule: Annotated[Literal["resident", "tiers"], Meta(description=(
        "resident: BLIS's rule; tiers: llm-d's rule"))] = "resident"
    max_loras: Annotated[int, Meta(ge=1, le=65_536, description="adapters that a replica can hold")] = 8


cdef struct Adapter:            # of one replica
    int64_t last_sent           # number of the request that was sent last with it; 0: never
    int32_t in_flight           # requests with it
    int32_t is_held


@cython.final
cdef class LoraAffinity(Scorer):
    """A replica that has the adapter loaded is better."""

    Parameters = LoraAffinityParameters

    cdef bint _has_tiers
    cdef bint _asks_replicas    # replicas report the adapters that they hold
    cdef int32_t _max_loras
    cdef int32_t _num_adapters
    cdef int64_t _num_sent
    cdef Adapter* _adapters     # [replica][adapter]
    cdef int32_t* _num_held     # [replica] adapters
    cdef int32_t* _num_active   # [replica] adapters in flight

    def __cinit__(self, parameters, context):
        self._num_adapters = int(context.workload.demands["adapter"].max(initial=-1)) + 1
        self._adapters = <Adapter*>calloc(<size_t>self._num_adapters * self.num_replicas + 1, sizeof(Adapter))
        self._num_held = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        self._num_active = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        if self._adapters == NULL or self._num_held == NULL or self._num_active == NULL:
            raise MemoryError()

    def __init__(self, parameters, context):
        self._has_tiers = parameters.rule == "tiers"
        self._max_loras = parameters.max_loras
        self.is_per_request = True
        if self.view.knows_adapters and not self._has_tiers:
            self._asks_replicas = self.view.wants_adapters = self.view.wants_counts = True

    def __dealloc__(self):
        free(self._adapters)
        free(self._num_held)
        free(self._num_active)

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t adapter = self.demands[row].adapter, i
        cdef Adapter* it
        cdef bint is_anywhere = False, is_held
        for i in range(self.num_replicas):
            if adapter < 0:
                self.values[i] = 1.0
                continue
            it = self._of(i, adapter)
            is_held = self.view.holds_adapter(i, adapter, now_ns) if self._asks_replicas else it.is_held
            is_anywhere = is_anywhere or (is_held and self.takes_part(i))
            if not self._has_tiers:
                self.values[i] = 1.0 if is_held else 0.0
            elif it.in_flight > 0:
                self.values[i] = 1.0
            elif self._num_active[i] < self._max_loras:
                self.values[i] = 0.8
            else:
                self.values[i] = 0.6 if is_held else 0.0
        if adapter >= 0 and not self._has_tiers and not is_anywhere:
            for i in range(self.num_replicas):
                self.values[i] = 1.0
        return 1

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t adapter = self.demands[row].adapter, oldest = -1, i
        cdef Adapter* it
        if adapter < 0:
            return 0
        it = self._of(replica, adapter)
        self._num_sent += 1
        it.last_sent = self._num_sent
        self._num_active[replica] += it.in_flight == 0
        it.in_flight += 1
        if it.is_held:
            return 0
        it.is_held = True
        self._num_held[replica] += 1
        if self._num_held[replica] > self._max_loras:
            for i in range(self._num_adapters):
                if self._of(replica, i).is_held and (
                        oldest < 0 or self._of(replica, i).last_sent < self._of(replica, oldest).last_sent):
                    oldest = i
            self._of(replica, oldest).is_held = False
            self._num_held[replica] -= 1
        return 0

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t adapter = self.demands[row].adapter
        cdef Adapter* it
        if adapter >= 0:
            it = self._of(replica, adapter)
            it.in_flight -= 1
            self._num_active[replica] -= it.in_flight == 0
        return 0

    cdef int closed(self, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        for i in range(self._num_adapters):
            self._of(replica, i).is_held = False
        self._num_held[replica] = 0
        return 0

    cdef inline Adapter* _of(self, int32_t replica, int32_t adapter) noexcept nogil:
        return &self._adapters[<int64_t>replica * self._num_adapters + adapter]
