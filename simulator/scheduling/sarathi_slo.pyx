"""`sarathi_slo`: chunked prefills that keep an SLO on the time between tokens.

Each decoding request has a token in each iteration, beside chunks of prompts. While any request decodes, all chunks of
an iteration together are limited, and the limit follows measured iterations: it is halved after an iteration longer
than `tbt_slo_ms`, and raised by `chunk_step_tokens` after a shorter one that used the limit up. Requests are served in
order of arrival; where blocks run out, the last admitted is preempted.

Source: Sarathi-Serve, arXiv 2403.02310, sections 4.2 and 4.3, where one limit is found by profiling before serving;
additive increase and multiplicative decrease: Chiu and Jain, Computer Networks and ISDN Systems 17(1), 1989.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.iteration cimport Batch
from simulator.scheduling.ranked cimport Ranked, RequestRanking

from typing import Annotated

from msgspec import Meta

from simulator.scheduling.ranked import RankedParameters

Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class SarathiSloParameters(RankedParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a batch, and of its time."""

    tbt_slo_ms: Annotated[float, Meta(gt=0, le=1e6, description="longest iteration with decodes, in ms")] = 100.0
    chunk_tokens: Annotated[Tokens, Meta(description=(
        "prompt tokens in an iteration with decodes, at first"))] = 512
    min_chunk_tokens: Annotated[Tokens, Meta(description="least limit, however long iterations take")] = 64
    chunk_step_tokens: Annotated[Tokens, Meta(description="increase after an iteration in time")] = 64


@cython.final
cdef class SarathiSlo(Ranked):
    """Chunks as long as iterations allow; see `SarathiSloParameters`."""

    Parameters = SarathiSloParameters

    cdef int64_t _slo_ns
    cdef int64_t _chunk                 # most prompt tokens in an iteration with decodes, now
    cdef int64_t _first                 # the limit before any measurement
    cdef int64_t _least
    cdef int64_t _step

    def __init__(self, parameters, context):
        Ranked.__init__(self, parameters, context)
        self._slo_ns = round(parameters.tbt_slo_ms * 1e6)
        self._least = min(parameters.min_chunk_tokens, self._token_budget)
        self._first = self._chunk = max(min(parameters.chunk_tokens, self._token_budget), self._least)
        self._step = parameters.chunk_step_tokens
        self._learns = True
        self._rank_by(context, RequestRanking(context))

    cdef void _learn(self, const Batch* batch) noexcept nogil:
        if batch.shape.num_decodes == 0:
            return
        if batch.duration_ns > self._slo_ns:
            self._chunk = max(self._chunk // 2, self._least)
        elif batch.shape.prefill_tokens >= self._chunk:
            self._chunk = min(self._chunk + self._step, self._token_budget)

    cdef void forget(self) noexcept nogil:
        self._chunk = self._first
        Ranked.forget(self)

    cdef int _begin_batch(self, int64_t now_ns) except -1 nogil:
        cdef int32_t slot = -1 if self.grouping else self._running.head, i
        cdef int64_t decodes = self.num_members
        for i in range(self._num_prefilling if self.grouping else 0):
            decodes += self._sequences[self._prefilling[i]].is_decoding
        while slot >= 0:
            decodes += self._sequences[slot].is_decoding
            slot = self._links.next(slot)
        if decodes > 0:
            self._budget = min(self._token_budget, decodes + self._chunk)
        return 0
