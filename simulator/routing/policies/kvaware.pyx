"""`kvaware`: the replica that has most of the prompt in its KV cache, if that is nearly all."""
from libc.math cimport INFINITY
from libc.stdint cimport INT32_MAX, int8_t, int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
cimport cython

from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.core.draws cimport mix
from simulator.routing.base cimport Router
from simulator.routing.parts.hash_ring cimport HashRing
from simulator.routing.parts.pick cimport pick_highest
from simulator.core.sliding_sums cimport SlidingSums
from simulator.signals.media cimport DEVICE, DISK, HOST, NUM_MEDIA, SHARED


class KvawareParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The longest match wins if at most `threshold_tokens` of the prompt are missing.

    Otherwise the owner of the session on a hash ring; without a session, the replica that got the fewest requests
    within `rate_window_s`. The view of caches may be as old as cache_signal_delay_s says. Source: KvawareRouter of
    vllm-project/production-stack (src/vllm_router/routers/routing_logic.py), which queries LMCache's controller for
    LMCache's content, in host memory and below. Here a match is the leading blocks that are in the KV cache of the
    replica or, wherever it has [kv_tiers], can be loaded from there.
    """

    threshold_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "tokens of the prompt that may be missing"))] = 2000
    rate_window_s: Annotated[float, Meta(gt=0, le=1e6, description=(
        "window over which the rate of requests is taken"))] = 60.0
    points_per_replica: Annotated[int, Meta(ge=1, le=4096, description="points of each replica on the hash ring")] = 160


@cython.final
cdef class Kvaware(Router):
    """The replica that has the prompt, else that of the session."""

    Parameters = KvawareParameters

    cdef int32_t _threshold
    cdef int32_t _block_size
    cdef HashRing _ring
    cdef SlidingSums _rate      # requests sent, by replica
    cdef double* _preference    # [num_replicas] scratch

    def __cinit__(self, parameters, context):
        self._preference = <double*>calloc(self.num_replicas, sizeof(double))
        if self._preference == NULL:
            raise MemoryError()

    def __init__(self, parameters, context):
        self._threshold = parameters.threshold_tokens
        self._block_size = context.block_size
        self._ring = HashRing(self.num_replicas, parameters.points_per_replica)
        self._rate = SlidingSums(self.num_replicas, parameters.rate_window_s)
        self.reads_state = True
        self.view.wants_caches = self.view.wants_tiers = True

    @classmethod
    def sees_tiers(cls, parameters):
        """See Router."""
        return True

    def __dealloc__(self):
        free(self._preference)

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t session = self.demands[row].session
        if not self._has_match(row, now_ns, self._preference):
            if session >= 0:
                return self._ring.owner(mix(<uint64_t>session + 1), self.view, INT32_MAX)
            self._rates(now_ns, self._preference)
        return pick_highest(self._preference, self.num_replicas, self.draws)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        if not self._has_match(row, now_ns, scores):
            self._rates(now_ns, scores)
        return 0

    cdef bint _has_match(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        """Count the blocks that each open replica has; return whether the most are enough."""
        cdef const int32_t* cached
        cdef int32_t best = 0, count, i, medium
        self.view.look(now_ns)
        cached = self._cached(row, now_ns)
        for i in range(self.num_replicas):
            scores[i] = -INFINITY
            if self.view.accounts[i].is_routable:
                count = cached[i]
                for medium in range(1, NUM_MEDIA if self.view.has_tiers else 1):
                    count += cached[medium * self.num_replicas + i]
                scores[i] = count
                best = max(best, count)
        return best > 0 and <int64_t>best * self._block_size >= self.requests[row].prompt_tokens - self._threshold

    cdef const int32_t* _cached(self, int32_t row, int64_t now_ns) except NULL nogil:
        cdef int8_t[NUM_MEDIA] order = [DEVICE, HOST, DISK, SHARED]
        if self.view.has_tiers:
            return self.view.best_tiers(row, order, NUM_MEDIA, now_ns)
        return self.view.cached_everywhere(row, now_ns)

    cdef void _rates(self, int64_t now_ns, double* scores) noexcept nogil:
        cdef int32_t i
        self._rate.advance(now_ns)
        for i in range(self.num_replicas):
            scores[i] = -self._rate.sums[i] if self.view.accounts[i].is_routable else -INFINITY

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self._rate.advance(now_ns)
        self._rate.add(replica, 1.0)
        return 0
