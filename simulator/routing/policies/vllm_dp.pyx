"""`vllm_dp`: the rule by which vLLM's front end spreads requests over its data-parallel engines."""
from libc.math cimport INFINITY
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.domain.vllm_versions import NEWEST, VllmVersion, behaviour_of, versions_that

from simulator.core.tied_minima cimport TiedMinima
from simulator.routing.base cimport Router
from simulator.signals.load cimport kv_usage


class VllmDpParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The lowest score wins, the first one met among equals.

    0.10: 4 waiting + running, scanned from the first engine. 0.32: the larger of waiting + running and the front end's
    own count of requests in flight there; if any wait, plus 6 waiting max(0, KV usage - 0.5); the scan starts one
    engine further each time. Both count a request that they send as waiting until the engine reports again, which real
    engines do every 100 ms: set snapshot_refresh_interval_s = 0.1.
    Source: vllm-project/vllm, vllm/v1/engine/core_client.py, DPLBAsyncMPClient.get_core_engine_for_request.
    """

    vllm_version: Annotated[VllmVersion, Meta(description="version of the rule")] = NEWEST
    client_count: Annotated[int, Meta(ge=1, le=1024, description=(
        "front ends that share the engines; each counts its own requests as this many"))] = 1
    client_index: Annotated[int, Meta(ge=0, le=1023, description=(
        "number of this front end, below client_count: the scan begins at that share of the engines; 0.32"))] = 0

    def __post_init__(self):
        if self.client_index >= self.client_count:
            raise ValueError(f"client_index must be below client_count, {self.client_count}; found {self.client_index}")
        if self.client_index > 0 and not behaviour_of(self.vllm_version).router_sees_kv:
            raise ValueError(f"client_index is of {versions_that('router_sees_kv')}: {self.vllm_version} begins each "
                             "scan with the first engine")


cdef double score_0_10(int64_t waiting, int64_t running) noexcept nogil:
    """Score an engine as vLLM 0.10 does."""
    return <double>(4 * waiting + running)


cdef double score_0_32(int64_t waiting, int64_t running, int64_t in_flight, double usage) noexcept nogil:
    """Score an engine as vLLM 0.32 does."""
    cdef double score = <double>max(in_flight, waiting + running)
    return score + waiting * 6.0 * (usage - 0.5) if waiting > 0 and usage > 0.5 else score


@cython.final
cdef class VllmDp(Router):
    """The engine that vLLM's front end would take; costs only what changes."""

    Parameters = VllmDpParameters

    cdef bint _is_old           # 0.10
    cdef int32_t _clients
    cdef int32_t _first         # where the scan starts
    cdef TiedMinima _scores     # infinity: closed
    cdef int32_t* _added        # [replica] waiting requests sent since its state was reported
    cdef int64_t* _on_ns        # [replica] time of the state to which they are added
    cdef int32_t* _raised       # [_num_raised] replicas that have, or had, such requests, each once
    cdef int8_t* _is_raised     # [replica]
    cdef int32_t _num_raised
    cdef int64_t* _seen_ns      # [replica] time of its state when it was scored last, or was closed
    cdef int8_t* _reported      # [replica] it reports at each look, at the last one too
    cdef int64_t _scored_ns     # View.looked_ns at that time

    def __cinit__(self, parameters, context):
        self._scores = TiedMinima(self.num_replicas)
        self._added = <int32_t*>calloc(2 * self.num_replicas, sizeof(int32_t))
        self._on_ns = <int64_t*>calloc(2 * self.num_replicas, sizeof(int64_t))
        self._reported = <int8_t*>calloc(2 * self.num_replicas, sizeof(int8_t))
        if self._added == NULL or self._on_ns == NULL or self._reported == NULL:
            raise MemoryError()
        self._raised, self._seen_ns = self._added + self.num_replicas, self._on_ns + self.num_replicas
        self._is_raised = self._reported + self.num_replicas

    def __init__(self, parameters, context):
        self._is_old = not behaviour_of(parameters.vllm_version).router_sees_kv
        self._clients = parameters.client_count
        if not self._is_old:
            self._first = self.num_replicas * parameters.client_index // parameters.client_count
        self.reads_state = self.has_scores = True
        self.view.wants_counts = self.view.wants_in_flight = True
        self.view.wants_blocks = self.view.wants_blocks or not self._is_old

    def __dealloc__(self):
        free(self._added)
        free(self._on_ns)
        free(self._reported)

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t chosen = -1
        self._refresh(now_ns)
        if self._scores.least() < INFINITY:
            chosen = self._scores.tied_from(self._first)
        if not self._is_old:
            self._first = self._first + 1 if self._first + 1 < self.num_replicas else 0
        return chosen

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        if self._added[replica] == 0:
            self._on_ns[replica] = self._seen_ns[replica]
            if self._reported[replica]:
                self._on_ns[replica] = max(self._scored_ns, self._seen_ns[replica])
        if not self._is_raised[replica]:
            self._is_raised[replica] = True
            self._raised[self._num_raised] = replica
            self._num_raised += 1
        self._added[replica] += self._clients
        self.view.mark(replica)
        return 0

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t i
        self._refresh(now_ns)
        for i in range(self.num_replicas):
            scores[i] = -self._scores.get(i)
        return 0

    cdef int _refresh(self, int64_t now_ns) except -1 nogil:
        """Score replicas that changed, and replicas that report again after we sent requests."""
        cdef int32_t i, replica
        self.view.look(now_ns)
        if self.view.looked_ns != self._scored_ns:      # idle replicas have reported, too
            self._review_raised()
        for i in range(self.view.num_changed):
            replica = self.view.changed[i]
            if self.view.accounts[replica].is_routable:
                self._reported[replica] = not self.view.states[replica].is_silent
                self._seen_ns[replica] = self.view.states[replica].time_ns
                self._forget_added(replica)
                self._scores.set(replica, self._score_of(replica))
                continue
            if self._reported[replica]:             # it is no longer scored
                self._reported[replica], self._seen_ns[replica] = False, max(self._scored_ns, self._seen_ns[replica])
            self._scores.set(replica, INFINITY)
        self.view.forget_changes()
        self._scored_ns = self.view.looked_ns
        return 0

    cdef void _review_raised(self) noexcept nogil:
        cdef int32_t kept = 0, i, replica
        for i in range(self._num_raised):
            replica = self._raised[i]
            if self.view.accounts[replica].is_routable and self._forget_added(replica):
                self.view.mark(replica)
            self._is_raised[replica] = self._added[replica] > 0
            self._raised[kept] = replica
            kept += self._is_raised[replica]
        self._num_raised = kept

    cdef bint _forget_added(self, int32_t replica) noexcept nogil:
        """Drop the requests added to a state that has been replaced; say whether there were any."""
        cdef int64_t time_ns = self.view.states[replica].time_ns
        if not self.view.states[replica].is_silent:
            time_ns = max(time_ns, self.view.looked_ns)
        if self._added[replica] == 0 or time_ns == self._on_ns[replica]:
            return False
        self._added[replica] = 0
        return True

    cdef double _score_of(self, int32_t replica) noexcept nogil:
        cdef int64_t waiting = self.view.states[replica].waiting + self._added[replica]
        if self._is_old:
            return score_0_10(waiting, self.view.states[replica].running)
        return score_0_32(waiting, self.view.states[replica].running,
                          <int64_t>self._clients * self.view.accounts[replica].in_flight, kv_usage(self.view, replica))
