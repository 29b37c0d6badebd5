"""`vllm_dp`: how vLLM's front end spreads requests over its data-parallel engines."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.routing.base cimport Router
from simulator.signals.load cimport kv_usage


class VllmDpParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The lowest score wins, the first one met among equals.

    0.10: 4 waiting + running, scanned from the first engine. 0.32: the larger of waiting + running and what the front
    end itself has in flight there; if any wait, plus 6 waiting max(0, KV usage - 0.5); the scan starts one engine
    further each time. Both count a request that they send as waiting until the engine reports again, which real engines
    do every 100 ms: set snapshot_refresh_interval_s = 0.1.
    Source: vllm-project/vllm, vllm/v1/engine/core_client.py, DPLBAsyncMPClient.get_core_engine_for_request.
    """

    vllm_version: Annotated[Literal["0.10", "0.32"], Meta(description="whose rule")] = "0.32"
    client_count: Annotated[int, Meta(ge=1, le=1024, description=(
        "front ends that share the engines; each takes its own requests for that many"))] = 1
    client_index: Annotated[int, Meta(ge=0, le=1023, description=(
        "which of them this one is, below client_count: the scan begins at as large a share of the engines; 0.32"))] = 0

    def __post_init__(self):
        if self.client_index >= self.client_count:
            raise ValueError(f"client_index must be below client_count, {self.client_count}; found {self.client_index}")
        if self.client_index > 0 and self.vllm_version == "0.10":
            raise ValueError("client_index is of 0.32: 0.10 begins each scan with the first engine")


cdef double score_0_10(int64_t waiting, int64_t running) noexcept nogil:
    """Score an engine as vLLM 0.10 does."""
    return <double>(4 * waiting + running)


cdef double score_0_32(int64_t waiting, int64_t running, int64_t in_flight, double usage) noexcept nogil:
    """Score an engine as vLLM 0.32 does."""
    cdef double score = <double>max(in_flight, waiting + running)
    return score + waiting * 6.0 * (usage - 0.5) if waiting > 0 and usage > 0.5 else score


@cython.final
cdef class VllmDp(Router):
    """The engine that vLLM's front end would take."""

    Parameters = VllmDpParameters

    cdef bint _is_old           # 0.10
    cdef int32_t _clients
    cdef int32_t _first         # where the scan starts
    cdef int32_t* _added        # [replica] waiting requests that we know of and its state does not
    cdef int64_t* _seen_ns      # [replica] time of the state to which they come on top

    def __cinit__(self, parameters, context):
        self._added = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        self._seen_ns = <int64_t*>calloc(self.num_replicas, sizeof(int64_t))
        if self._added == NULL or self._seen_ns == NULL:
            raise MemoryError()

    def __init__(self, parameters, context):
        self._is_old = parameters.vllm_version == "0.10"
        self._clients = parameters.client_count
        if not self._is_old:
            self._first = self.num_replicas * parameters.client_index // parameters.client_count
        self.reads_state = self.has_scores = True
        self.view.wants_counts = True
        self.view.wants_levels = not self._is_old

    def __dealloc__(self):
        free(self._added)
        free(self._seen_ns)

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t chosen = -1, replica = self._first
        cdef double least = INFINITY, score
        self.view.look(now_ns)
        for _ in range(self.num_replicas):
            if self.view.accounts[replica].is_routable:
                score = self._score_of(replica)
                if score < least:
                    chosen, least = replica, score
            replica = replica + 1 if replica + 1 < self.num_replicas else 0
        if not self._is_old:
            self._first = self._first + 1 if self._first + 1 < self.num_replicas else 0
        return chosen

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self._added[replica] += self._clients
        return 0

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t i
        self.view.look(now_ns)
        for i in range(self.num_replicas):
            scores[i] = -self._score_of(i) if self.view.accounts[i].is_routable else -INFINITY
        return 0

    cdef double _score_of(self, int32_t replica) noexcept nogil:
        cdef int64_t waiting
        if self.view.states[replica].time_ns != self._seen_ns[replica]:
            self._seen_ns[replica] = self.view.states[replica].time_ns
            self._added[replica] = 0
        waiting = self.view.states[replica].waiting + self._added[replica]
        if self._is_old:
            return score_0_10(waiting, self.view.states[replica].running)
        return score_0_32(waiting, self.view.states[replica].running,
                          <int64_t>self._clients * self.view.accounts[replica].in_flight, kv_usage(self.view, replica))
