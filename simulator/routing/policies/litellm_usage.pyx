"""`litellm_usage`: the replica with the fewest tokens in this minute, within its limits."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.request cimport COMPLETED
from simulator.routing.parts.minute_usage cimport MinuteUsage
from simulator.routing.parts.scored_router cimport ScoredRouter

import msgspec


class LitellmUsageParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fewest tokens of this minute of the clock win, drawn of several.

    Tokens, prompt and output, count when a request has completed; requests when they are sent. A replica is left out if
    its tokens and those of the prompt are above pools.tpm, or if it was sent a request in this minute and
    requests + 1 >= pools.rpm, one request before the limit. Without a replica left the request is refused.
    Source: usage-based-routing-v2 of LiteLLM 1.110.2 (litellm/router_strategy/lowest_tpm_rpm_v2.py).
    """


@cython.final
cdef class LitellmUsage(ScoredRouter):
    """The replica with the fewest tokens in this minute."""

    Parameters = LitellmUsageParameters
    reads_quotas = ("rpm", "tpm")
    why_no_legs = "it learns from the ends of whole requests"

    cdef MinuteUsage _usage

    def __cinit__(self, parameters, context):
        self._usage = MinuteUsage(context)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t prompt_tokens = self.requests[row].prompt_tokens, i
        self._usage.advance(now_ns)
        for i in range(self.num_replicas):
            scores[i] = -INFINITY
            if (self.view.accounts[i].is_routable and self._usage.has_tokens(i, prompt_tokens)
                    and (self._usage.requests[i] == 0 or self._usage.has_requests(i, 1))):
                scores[i] = -<double>self._usage.tokens[i]
        return 0

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self._usage.advance(now_ns)
        self._usage.count(replica, 1, 0)
        return 0

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        if self.requests[row].status == COMPLETED:
            self._usage.advance(now_ns)
            self._usage.count(replica, 0, self.requests[row].prompt_tokens + self.requests[row].output_tokens)
        return 0

    cdef int moved(self, int32_t row, int32_t before, int32_t after, int64_t now_ns) except -1 nogil:
        return 0                # one request of the gateway, which counts where it completes
