"""`least_loaded`: the replica with the least to do."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.routing.base cimport Router
from simulator.routing.parts.least_load cimport LeastLoad

import msgspec

from simulator.routing.parts.load import LoadName


class LeastLoadedParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The least load wins; among equals each replica has the same chance.

    Source: `effective` is BLIS's least-loaded (inference-sim, sim/routing.go); `requests` AIBrix's least-request and
    `kv` its least-kv-cache (vllm-project/aibrix, pkg/plugins/gateway/algorithms).
    """

    metric: LoadName = "requests"

    @property
    def reads_expected_tokens(self):
        """Say whether predictions of output lengths matter."""
        return self.metric == "expected_tokens"


@cython.final
cdef class LeastLoaded(Router):
    """The replica with the least load; costs only what changes."""

    Parameters = LeastLoadedParameters

    cdef LeastLoad _least

    def __init__(self, parameters, context):
        self._least = LeastLoad(self.view, parameters.metric)
        self.reads_state = self.has_scores = True

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        self._least.refresh(now_ns)
        return self._least.pick(self.draws)

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return self._least.sent(replica)

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return self._least.left(replica)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t i
        self._least.refresh(now_ns)
        for i in range(self.num_replicas):
            scores[i] = -self._least.load(i)
        return 0
