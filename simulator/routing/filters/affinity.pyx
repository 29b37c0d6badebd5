"""Filters by earlier requests: a replica with the beginning of the prompt, or with the session."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.core.clock cimport ns_from_s
from simulator.routing.filters.base cimport Filter
from simulator.routing.parts.prefix_index cimport PrefixIndex

from simulator.routing.parts.prefix_router import BlockTokens, Capacity

Share = Annotated[float, Meta(ge=0, le=1)]


class PrefixAffinityFilterParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keep replicas that were sent most of the prompt, unless much busier.

    Sticky replicas: leading whole blocks that the router remembers / whole blocks of the prompt >= threshold. All
    candidates stay if none is sticky, and if the least predicted TTFT of sticky replicas is more than
    max_ttft_penalty_ms above the least of the others; TTFT = prompt tokens in flight / peak_prefill_tokens_per_s.
    Source: prefix-cache-affinity-filter of llm-d-router ebab6879 and its defaults (Qwen-32B on two H100); with its
    latency predictor, that filter takes predicted TTFTs instead.
    """

    threshold: Annotated[Share, Meta(description="least share of the prompt's blocks on a sticky replica")] = 0.8
    explore_share: Annotated[Share, Meta(description="share of requests, drawn, for which all candidates stay")] = 0.0
    max_ttft_penalty_ms: Annotated[float, Meta(ge=0, le=1e9, description=(
        "largest difference between predicted times to first token for which sticky replicas are kept; 0: any"
    ))] = 18000.0
    peak_prefill_tokens_per_s: Annotated[float, Meta(gt=0, le=1e12, description=(
        "prompt tokens that a replica computes per second, for the predicted times"))] = 15928.0
    capacity_blocks: Capacity = 31_250
    block_tokens: BlockTokens = 0


@cython.final
cdef class PrefixAffinityFilter(Filter):
    """Replicas that were sent this prefix, unless they are much busier."""

    Parameters = PrefixAffinityFilterParameters

    cdef PrefixIndex _index
    cdef int32_t* _matched              # [replica] blocks
    cdef double _threshold, _explore, _penalty_s, _peak

    def __cinit__(self, parameters, context):
        self._matched = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        if self._matched == NULL:
            raise MemoryError()

    def __init__(self, parameters, context):
        self._index = PrefixIndex(context, parameters.capacity_blocks, block_tokens=parameters.block_tokens)
        self._threshold, self._explore = parameters.threshold, parameters.explore_share
        self._penalty_s = parameters.max_ttft_penalty_ms / 1e3
        self._peak = parameters.peak_prefill_tokens_per_s

    def __dealloc__(self):
        free(self._matched)

    cdef int32_t keep(self, int32_t row, int32_t* candidates, int32_t count, int64_t now_ns) except -1 nogil:
        cdef int32_t num_blocks = self._index.num_blocks(row), num_sticky = 0, i
        cdef double[2] least
        cdef bint is_sticky
        if count <= 1 or num_blocks == 0 or (self._explore > 0 and self.uniform(row) < self._explore):
            return count
        self._index.match(row, self._matched)
        least[0] = least[1] = INFINITY
        for i in range(count):
            is_sticky = self._is_sticky(candidates[i], num_blocks)
            num_sticky += is_sticky
            least[is_sticky] = min(least[is_sticky],
                                   <double>self.view.accounts[candidates[i]].in_flight_tokens / self._peak)
        if num_sticky == 0 or num_sticky == count or (
                self._penalty_s > 0 and least[1] - least[0] > self._penalty_s):
            return count
        num_sticky = 0
        for i in range(count):
            if self._is_sticky(candidates[i], num_blocks):
                candidates[num_sticky] = candidates[i]
                num_sticky += 1
        return num_sticky

    cdef inline bint _is_sticky(self, int32_t replica, int32_t num_blocks) noexcept nogil:
        return <double>self._matched[replica] / num_blocks >= self._threshold

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self._index.touch(row, replica)
        return 0

    cdef int closed(self, int32_t replica, int64_t now_ns) except -1 nogil:
        self._index.forget(replica)
        return 0


class SessionAffinityFilterParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keep the replica of the session alone, if it is a candidate.

    A session is bound to the replica of its last request. Other requests, and sessions without a binding, keep all.
    Source: session-affinity-filter of llm-d-router ebab6879; its sweep of old bindings each 10 s is not modelled.
    """

    ttl_s: Annotated[float, Meta(ge=0, le=1e6, description=(
        "time after the last request of a session for which it stays bound; 0: for ever, as with a header that the "
        "client sends back"))] = 300.0


cdef struct Binding:
    int64_t since_ns
    int32_t replica                     # + 1; 0: none


@cython.final
cdef class SessionAffinityFilter(Filter):
    """The replica that served the session last."""

    Parameters = SessionAffinityFilterParameters

    cdef Binding* _bindings             # [session]
    cdef int64_t _ttl_ns

    def __cinit__(self, parameters, context):
        num_sessions = int(context.workload.demands["session"].max(initial=-1)) + 1
        self._bindings = <Binding*>calloc(num_sessions + 1, sizeof(Binding))
        if self._bindings == NULL:
            raise MemoryError()
        self._ttl_ns = ns_from_s(parameters.ttl_s)

    def __dealloc__(self):
        free(self._bindings)

    cdef int32_t keep(self, int32_t row, int32_t* candidates, int32_t count, int64_t now_ns) except -1 nogil:
        cdef int32_t session = self.demands[row].session, i
        cdef Binding* bound = &self._bindings[max(session, 0)]
        if session < 0 or bound.replica == 0 or (self._ttl_ns > 0 and now_ns - bound.since_ns > self._ttl_ns):
            return count
        for i in range(count):
            if candidates[i] == bound.replica - 1:
                candidates[0] = candidates[i]
                return 1
        return count

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        if self.demands[row].session >= 0:
            self._bindings[self.demands[row].session] = Binding(now_ns, replica + 1)
        return 0
