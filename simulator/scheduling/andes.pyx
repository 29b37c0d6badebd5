"""`andes`: quality of experience (QoE): tokens go to the readers that lack them most.

A reader expects the first token `expected_ttft_s` after the request arrived, and then `tokens_per_s`: E(t) tokens by
time t. With n tokens by then (tokens generated so far count as if on time), QoE(n, t) = 1 - ((E - n) / E)^2, where the
subtracted term is the delayed part of the area under E, or 1 if n >= E(t). Serving the request for the next
`horizon_s`, one token per `token_latency_ms`, gains QoE(n + horizon / latency) - QoE(n), both at the end of the
horizon; the gain of a running request is raised by `running_bonus`, for the cost of its place. A request's priority is
its gain per token of its text.

If the running list has no place for all requests, or the running requests and the texts of the waiting ones take up
`kv_watermark` of the blocks, requests are served by priority: a waiting request takes the place and blocks of running
requests of lower priority (the paper's greedy packing). Otherwise requests are served in order of arrival. Preemptions
for a place are capped at `preemptions_per_request` times the requests that have arrived. A request that has waited
much longer than `horizon_s` gains little, and may wait until the others are complete.

Source: Liu et al., Andes: Defining and Enhancing Quality-of-Experience in LLM-Based Text Streaming Services, arXiv
2404.16283: QoE, priority, packing, selective triggering, preemption cap. The QoE of a triangle, the bonus, horizon,
latency and watermark are those of its code, AmberLJC/vllm-0.6.1, vllm/core/andes_utils. That readers wait 1 s for the
first token, and one preemption per request, are our defaults; 4.8 tokens a second are 220 words a minute at 1.3 tokens
a word. Known differences:

- The code ranks before each tenth iteration, considers only the blocks held, and lets E begin when a request arrives;
  the paper searches for the best of several batch sizes, each with a latency of its own, and weighs the costs of a
  preemption.
- A preempted request is recomputed, as the code does by default; the paper also swaps KV to host memory.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.scheduling.by_gain cimport ByGain

from typing import Annotated

from msgspec import Meta

from simulator.scheduling.ranked import RankedParameters


class AndesParameters(RankedParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a batch, and the pace that readers expect."""

    expected_ttft_s: Annotated[float, Meta(ge=0, le=1e6, description="seconds until a reader expects a token")] = 1.0
    tokens_per_s: Annotated[float, Meta(gt=0, le=1e6, description="tokens per second that a reader takes in")] = 4.8
    token_latency_ms: Annotated[float, Meta(gt=0, le=1e6, description="ms per token of a request being served")] = 50.0
    horizon_s: Annotated[float, Meta(gt=0, le=1e6, description="seconds over which gains count")] = 50.0
    running_bonus: Annotated[float, Meta(ge=0, le=1000, description="extra gain of running requests, as a share")] = 0.5
    kv_watermark: Annotated[float, Meta(ge=0, le=1, description=(
        "priorities count once all requests would take up this share of the KV blocks"))] = 0.9
    preemptions_per_request: Annotated[float, Meta(ge=0, le=1e6, description="preemptions for a place, at most")] = 1.0


@cython.final
cdef class Andes(ByGain):
    """The greatest gain of experience per token of KV first; see `AndesParameters`."""

    Parameters = AndesParameters

    cdef double _ttft_ns, _tokens_per_ns, _horizon_ns, _served_tokens, _watermark, _cap
    cdef int64_t _num_came              # requests that have arrived so far

    def __init__(self, parameters, context):
        ByGain.__init__(self, parameters, context)
        self._ttft_ns = parameters.expected_ttft_s * 1e9
        self._tokens_per_ns = parameters.tokens_per_s * 1e-9
        self._horizon_ns = parameters.horizon_s * 1e9
        self._served_tokens = parameters.horizon_s * 1e3 / parameters.token_latency_ms
        self._running_weight = 1 + parameters.running_bonus
        self._watermark, self._cap = parameters.kv_watermark, parameters.preemptions_per_request

    cdef int enqueue(self, int32_t row) except -1 nogil:
        self._num_came += 1
        return ByGain.enqueue(self, row)

    cdef int _begin_batch(self, int64_t now_ns) except -1 nogil:
        cdef int64_t held = <int64_t>(self.kv.num_blocks - self.kv.free_blocks) * self.kv.block_size
        cdef int64_t tokens = held + self.waiting.tokens
        self._is_tight = (self._running.size + self.waiting.size > self.max_running
                          or <double>tokens >= self._watermark * <double>self.kv.num_blocks * self.kv.block_size)
        self._may_give_way = 0
        if self._is_tight:
            self._may_give_way = <int64_t>(self._cap * <double>self._num_came) - self._given_way
        return 0

    cdef double _expected(self, int64_t arrival_ns) noexcept nogil:
        """Return the tokens that a reader expects of a request by the end of the horizon."""
        return self._tokens_per_ns * (<double>(self._now_ns - arrival_ns) + self._horizon_ns - self._ttft_ns)

    cdef double _gain(self, double tokens, double expected) noexcept nogil:
        return qoe(tokens + self._served_tokens, expected) - qoe(tokens, expected)

    cdef double _gain_of(self, double tokens, int64_t arrival_ns) noexcept nogil:
        return self._gain(tokens, self._expected(arrival_ns))

    cdef double _most_of(self, int32_t tokens, int64_t earliest_ns, int64_t latest_ns) noexcept nogil:
        """Return an upper bound of the gain of requests with at least `tokens`, arrived in [earliest_ns, latest_ns].

        With n tokens and S more in a horizon, the gain rises with E up to 2n + S, and falls from there.
        """
        cdef double expected = self._expected(latest_ns)
        if earliest_ns < latest_ns:
            expected = min(max(2.0 * tokens + self._served_tokens, expected), self._expected(earliest_ns))
        return self._gain(tokens, expected)


cdef double qoe(double tokens, double expected) noexcept nogil:
    """Return the quality of experience with `tokens` of the `expected` ones; 1 if none are expected."""
    cdef double lacking = expected - tokens
    return 1.0 if lacking <= 0 else 1.0 - (lacking / expected) * (lacking / expected)
