"""`sarathi_slo`: chunked prefills that keep an SLO on the time between tokens.

Who decodes has a token in each iteration, and prompts are computed in chunks beside them. As long as somebody decodes,
all chunks of an iteration together have a limit, which follows the iterations that were measured: half of it after one
that took longer than `tbt_slo_ms`, and `chunk_step_tokens` more after one that did not, if it used the limit up.
Requests are served as they arrived; where blocks run out, the last admitted makes room.

Source: Sarathi-Serve, arXiv 2403.02310, sections 4.2 and 4.3, which finds one limit by profiling before it serves;
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
    """Limits of a batch, and how long it may take."""

    tbt_slo_ms: Annotated[float, Meta(gt=0, le=1e6, description="ms that an iteration with decodes may take")] = 100.0
    chunk_tokens: Annotated[Tokens, Meta(description=(
        "of prompts in an iteration with decodes, at first"))] = 512
    min_chunk_tokens: Annotated[Tokens, Meta(description="the same, however long iterations take")] = 64
    chunk_step_tokens: Annotated[Tokens, Meta(description="more after an iteration in time")] = 64


@cython.final
cdef class SarathiSlo(Ranked):
    """Chunks as long as iterations allow; see `SarathiSloParameters`."""

    Parameters = SarathiSloParameters

    cdef int64_t _slo_ns
    cdef int64_t _chunk                 # tokens of prompts in an iteration with decodes, now
    cdef int64_t _first                 # the same before anything was measured
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
