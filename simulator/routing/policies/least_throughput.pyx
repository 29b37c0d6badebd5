"""`least_throughput`: the replica with the fewest tokens of late, prompts counted twice."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
cimport cython

from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.core.sliding_sums cimport SlidingSums
from simulator.routing.parts.scored_router cimport ScoredRouter


class LeastThroughputParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The least 2 x prompt tokens + output tokens per second wins, drawn of several.

    A prompt counts when it is sent, its output when it has left. Source: throughput of vllm-project/aibrix at e3e10f9e
    (pkg/plugins/gateway/algorithms/throughput.go), which reads both rates from the engine's metrics.
    """

    window_s: Annotated[float, Meta(gt=0, le=1e6, description="window over which the rates are taken")] = 10.0


@cython.final
cdef class LeastThroughput(ScoredRouter):
    """The replica with the fewest tokens of late."""

    Parameters = LeastThroughputParameters

    cdef SlidingSums _tokens    # by replica, prompts twice

    def __init__(self, parameters, context):
        self._tokens = SlidingSums(self.num_replicas, parameters.window_s)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t i
        self._tokens.advance(now_ns)
        for i in range(self.num_replicas):
            scores[i] = -self._tokens.sums[i] if self.view.accounts[i].is_routable else -INFINITY
        return 0

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self._tokens.advance(now_ns)
        self._tokens.add(replica, 2.0 * self.requests[row].prompt_tokens)
        return 0

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self._tokens.advance(now_ns)
        self._tokens.add(replica, self.requests[row].output_tokens)
        return 0

    cdef int moved(self, int32_t row, int32_t before, int32_t after, int64_t now_ns) except -1 nogil:
        return 0                # its prompt was counted; its output counts where it ends
