"""`least_latency`: the replica with the least expected latency, from means of its completed requests."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
cimport cython

from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.core.sliding_sums cimport SlidingSums
from simulator.domain.request cimport COMPLETED
from simulator.routing.parts.scored_router cimport ScoredRouter

cdef enum:                      # sums of a replica, over its completed requests
    REQUESTS = 0
    QUEUE_S = 1
    PREFILL_S = 2
    DECODE_S = 3
    PROMPT_TOKENS = 4
    OUTPUT_TOKENS = 5
    NUM_SUMS = 6

cdef double USUAL_PROMPT = 10.0         # mean tokens while no replica has completed a request
cdef double USUAL_OUTPUT = 100.0


class LeastLatencyParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The least expected latency wins, drawn of several.

    Expected latency of a replica: mean time in its queue + mean prefill time per prompt token x P + mean decode time
    per output token x O, with P and O the mean prompt and output over the means of all open replicas. All means are of
    requests that completed there; a replica without any has latency 0.
    Source: least-latency of vllm-project/aibrix at e3e10f9e (pkg/plugins/gateway/algorithms/least_latency.go), which
    reads the means from the engine's metrics.
    """

    window_s: Annotated[float, Meta(gt=0, extra={"inf": True}, description=(
        "time for which a completed request counts; inf: always"))] = INFINITY


@cython.final
cdef class LeastLatency(ScoredRouter):
    """The replica with the least expected latency."""

    Parameters = LeastLatencyParameters
    why_no_legs = "it learns from the ends of whole requests"

    cdef SlidingSums _sums      # [replica x NUM_SUMS]

    def __init__(self, parameters, context):
        self._sums = SlidingSums(NUM_SUMS * self.num_replicas, parameters.window_s)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef double prompt, output
        cdef const double* sums
        cdef int32_t i
        self._sums.advance(now_ns)
        prompt, output = self._mean_of(PROMPT_TOKENS, USUAL_PROMPT), self._mean_of(OUTPUT_TOKENS, USUAL_OUTPUT)
        for i in range(self.num_replicas):
            sums = &self._sums.sums[NUM_SUMS * i]
            scores[i] = -INFINITY
            if self.view.accounts[i].is_routable:
                scores[i] = -(sums[QUEUE_S] / max(sums[REQUESTS], 1.0)
                              + sums[PREFILL_S] / max(sums[PROMPT_TOKENS], 1.0) * prompt
                              + sums[DECODE_S] / max(sums[OUTPUT_TOKENS], 1.0) * output)
        return 0

    cdef double _mean_of(self, int32_t number, double usual) noexcept nogil:
        """Return the mean over open replicas of their mean of a sum; `usual` without completed requests."""
        cdef double total = 0.0
        cdef int32_t known = 0, i
        for i in range(self.num_replicas):
            if self.view.accounts[i].is_routable and self._sums.sums[NUM_SUMS * i + REQUESTS] > 0.0:
                total += self._sums.sums[NUM_SUMS * i + number] / self._sums.sums[NUM_SUMS * i + REQUESTS]
                known += 1
        return total / known if known > 0 else usual

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int64_t scheduled_ns = self.requests[row].scheduled_ns, first_ns = self.requests[row].first_token_ns
        cdef int32_t place = NUM_SUMS * replica
        if self.requests[row].status != COMPLETED or first_ns < 0:
            return 0
        self._sums.advance(now_ns)
        self._sums.add(place + REQUESTS, 1.0)
        self._sums.add(place + QUEUE_S, max(scheduled_ns - self.requests[row].enqueued_ns, <int64_t>0) / 1e9)
        self._sums.add(place + PREFILL_S, max(first_ns - scheduled_ns, <int64_t>0) / 1e9)
        self._sums.add(place + DECODE_S, (self.requests[row].completed_ns - first_ns) / 1e9)
        self._sums.add(place + PROMPT_TOKENS, self.requests[row].prompt_tokens)
        self._sums.add(place + OUTPUT_TOKENS, self.requests[row].output_tokens)
        return 0

    cdef int moved(self, int32_t row, int32_t before, int32_t after, int64_t now_ns) except -1 nogil:
        return 0                # it counts where it completes
