"""`litellm_latency`: the replica with the lowest mean latency of its latest requests."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.domain.request cimport COMPLETED, TIMED_OUT
from simulator.routing.base cimport Router
from simulator.routing.parts.latest_samples cimport LatestSamples
from simulator.routing.parts.minute_usage cimport MinuteUsage
from simulator.routing.parts.pick cimport pick_highest

cdef double TIMEOUT_SAMPLE_S = 1000.0   # of a request that timed out


class LitellmLatencyParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The lowest latency wins, drawn among replicas within the buffer above it.

    The latency of a replica is the mean of its latest samples; the buffer ends at (1 + lowest_latency_buffer) x the
    lowest. A completed request is a sample: seconds from its dispatch to its last token, divided by its output tokens
    if it has any. A request that timed out is a sample of 1000 s. With `streams` and a time to first token known,
    times to first token decide instead. A replica without samples gets one of 0 s, which stays in its list if any
    replica has samples by then: the replica is tried first, and its mean is below the true one until
    max_latency_list_size samples have followed. Replicas above pools.tpm with the prompt, or at pools.rpm, are left
    out; both count completed requests of this minute of the clock.
    Source: latency-based-routing of LiteLLM 1.110.2 (litellm/router_strategy/lowest_latency.py).
    """

    lowest_latency_buffer: Annotated[float, Meta(ge=0, le=1e6, extra={"unit": "share"}, description=(
        "share above the lowest latency within which replicas count as equal"))] = 0.0
    max_latency_list_size: Annotated[int, Meta(ge=1, le=4096, description=(
        "number of samples kept of each replica, the latest"))] = 10
    ttft_percentile: Annotated[Annotated[float, Meta(ge=0, le=1)] | None, Meta(extra={"unit": "share"}, description=(
        "percentile, as a share, of the times to first token that decides; absent: their mean"))] = None
    ttl_s: Annotated[float, Meta(gt=0, le=9e9, description=(
        "time after the last sample of any replica at which all samples are forgotten"))] = 3600.0
    streams: Annotated[bool, Meta(description=(
        "requests are streamed: times to first token decide where they are known"))] = True


@cython.final
cdef class LitellmLatency(Router):
    """The replica with the lowest mean latency."""

    Parameters = LitellmLatencyParameters
    reads_quotas = ("rpm", "tpm")
    why_no_legs = "it learns from the ends of whole requests"

    cdef public bint streams            # whether the next requests to be routed, or to leave, are streamed
    cdef MinuteUsage _usage
    cdef LatestSamples _latencies, _first_tokens
    cdef int64_t _ttl_ns, _forgotten_ns         # _forgotten_ns: when the samples are forgotten; -1: there are none
    cdef double _buffer
    cdef int64_t* _sent_ns              # [row] when the request was sent
    cdef double* _latency               # [replica] scratch, like _preference
    cdef double* _preference

    def __cinit__(self, parameters, context):
        length = parameters.max_latency_list_size
        self._usage = MinuteUsage(context)
        self._latencies = LatestSamples(self.num_replicas, length)
        self._first_tokens = LatestSamples(self.num_replicas, length, parameters.ttft_percentile)
        self._sent_ns = <int64_t*>calloc(len(context.workload.requests) + 1, sizeof(int64_t))
        self._latency = <double*>calloc(self.num_replicas, sizeof(double))
        self._preference = <double*>calloc(self.num_replicas, sizeof(double))
        if self._sent_ns == NULL or self._latency == NULL or self._preference == NULL:
            raise MemoryError()

    def __init__(self, parameters, context):
        self.streams = parameters.streams
        self._buffer, self._ttl_ns = parameters.lowest_latency_buffer, round(parameters.ttl_s * 1e9)
        self._forgotten_ns = -1
        self.reads_state = self.has_scores = True

    def __dealloc__(self):
        free(self._sent_ns)
        free(self._latency)
        free(self._preference)

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef double limit = -INFINITY
        cdef int32_t i
        self.score(row, now_ns, self._preference)
        if self._forgotten_ns >= 0:
            for i in range(self.num_replicas):
                if self.view.accounts[i].is_routable and self._latencies.counts[i] == 0:
                    self._latencies.add(i, 0.0)
        for i in range(self.num_replicas):
            limit = max(limit, self._preference[i])
        if limit == -INFINITY:
            return -1
        limit *= 1.0 + self._buffer
        for i in range(self.num_replicas):
            self._latency[i] = 0.0 if self._preference[i] >= limit else -INFINITY
        return pick_highest(self._latency, self.num_replicas, self.draws)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t prompt_tokens = self.requests[row].prompt_tokens, i
        self._forget(now_ns)
        self._usage.advance(now_ns)
        for i in range(self.num_replicas):
            scores[i] = -INFINITY
            if not (self.view.accounts[i].is_routable and self._usage.has_tokens(i, prompt_tokens)
                    and self._usage.has_requests(i, 0)):
                continue
            if self.streams and self._first_tokens.counts[i] > 0:
                scores[i] = -self._first_tokens.values[i]
            else:
                scores[i] = -self._latencies.values[i] if self._latencies.counts[i] > 0 else 0.0
        return 0

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self._sent_ns[row] = now_ns
        return 0

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t output_tokens = self.requests[row].output_tokens
        cdef int64_t took_ns = self.requests[row].completed_ns - self._sent_ns[row]
        cdef int64_t first_ns = self.requests[row].first_token_ns - self._sent_ns[row]
        if self.requests[row].status != COMPLETED and self.requests[row].status != TIMED_OUT:
            return 0
        self._forget(now_ns)
        self._forgotten_ns = now_ns + self._ttl_ns
        if self.requests[row].status == TIMED_OUT:
            self._latencies.add(replica, TIMEOUT_SAMPLE_S)
            return 0
        self._latencies.add(replica, took_ns / 1e9 / max(output_tokens, 1))
        if self.streams and first_ns >= 0:        # else it began at a replica that failed
            self._first_tokens.add(replica, first_ns / 1e9)
        self._usage.advance(now_ns)
        self._usage.count(replica, 1, self.requests[row].prompt_tokens + output_tokens)
        return 0

    cdef int moved(self, int32_t row, int32_t before, int32_t after, int64_t now_ns) except -1 nogil:
        return 0                # the gateway sent it once; its sample is of the replica where it completes

    cdef void _forget(self, int64_t now_ns) noexcept nogil:
        """Forget all samples and counts after `ttl_s` without a new one."""
        if self._forgotten_ns >= 0 and now_ns >= self._forgotten_ns:
            self._latencies.clear()
            self._first_tokens.clear()
            self._usage.clear()
            self._forgotten_ns = -1
