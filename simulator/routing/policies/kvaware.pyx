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
from simulator.routing.parts.holders cimport most, pick_with
from simulator.routing.parts.pick cimport pick_highest, pick_least
from simulator.core.sliding_sums cimport SlidingSums
from simulator.core.tied_minima cimport TiedMinima
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
    cdef TiedMinima _rates      # of the open replicas; infinity: closed
    cdef int64_t _rated_slice   # `_rates` has the sums of this slice of `_rate`
    cdef int32_t _num_closed

    def __cinit__(self, parameters, context):
        self._preference = <double*>calloc(self.num_replicas, sizeof(double))
        if self._preference == NULL:
            raise MemoryError()

    def __init__(self, parameters, context):
        self._threshold = parameters.threshold_tokens
        self._block_size = context.block_size
        self._ring = HashRing(self.num_replicas, parameters.points_per_replica)
        self._rate = SlidingSums(self.num_replicas, parameters.rate_window_s)
        self._rates, self._num_closed = TiedMinima(self.num_replicas), self.num_replicas
        self.reads_state = True
        self.view.wants_caches = self.view.wants_tiers = True

    @classmethod
    def sees_tiers(cls, parameters):
        """See Router."""
        return True

    def __dealloc__(self):
        free(self._preference)

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t session = self.demands[row].session, best
        cdef const int32_t* cached
        self.view.look(now_ns)
        self._take_changes()
        if self._num_closed == 0 and not self.view.has_tiers:
            cached = self.view.cached_everywhere(row, now_ns)
            best = most(cached, self.num_replicas)
            if self._is_match(row, best):
                return pick_with(best, cached, self.num_replicas, self.draws)
        elif self._has_match(row, now_ns, self._preference):
            return pick_highest(self._preference, self.num_replicas, self.draws)
        if session >= 0:
            return self._ring.owner(mix(<uint64_t>session + 1), self.view, INT32_MAX)
        self._rate.advance(now_ns)
        self._keep_rates()
        return pick_least(self._rates, self.draws)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t i
        self.view.look(now_ns)
        if not self._has_match(row, now_ns, scores):
            self._rate.advance(now_ns)
            for i in range(self.num_replicas):
                scores[i] = -self._rate.sums[i] if self.view.accounts[i].is_routable else -INFINITY
        return 0

    cdef bint _is_match(self, int32_t row, int32_t blocks) noexcept nogil:
        """Return whether so many cached blocks are enough of a prompt."""
        return blocks > 0 and <int64_t>blocks * self._block_size >= self.requests[row].prompt_tokens - self._threshold

    cdef bint _has_match(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        """Count the blocks that each open replica has; return whether the most are enough."""
        cdef const int32_t* cached
        cdef int32_t best = 0, count, i, medium
        cached = self._cached(row, now_ns)
        for i in range(self.num_replicas):
            scores[i] = -INFINITY
            if self.view.accounts[i].is_routable:
                count = cached[i]
                for medium in range(1, NUM_MEDIA if self.view.has_tiers else 1):
                    count += cached[medium * self.num_replicas + i]
                scores[i] = count
                best = max(best, count)
        return self._is_match(row, best)

    cdef const int32_t* _cached(self, int32_t row, int64_t now_ns) except NULL nogil:
        cdef int8_t[NUM_MEDIA] order = [DEVICE, HOST, DISK, SHARED]
        if self.view.has_tiers:
            return self.view.best_tiers(row, order, NUM_MEDIA, now_ns)
        return self.view.cached_everywhere(row, now_ns)

    cdef void _take_changes(self) noexcept nogil:
        """Note which replicas have opened or closed."""
        cdef int32_t i, replica
        cdef bint is_open
        for i in range(self.view.num_changed):
            replica = self.view.changed[i]
            is_open = self._rates.get(replica) < INFINITY
            if (self.view.accounts[replica].is_routable != 0) != is_open:
                self._num_closed += 1 if is_open else -1
                self._rates.set(replica, INFINITY if is_open else self._rate.sums[replica])
        self.view.forget_changes()

    cdef void _keep_rates(self) noexcept nogil:
        """After a slice of the window has passed: take over the sums of all open replicas."""
        cdef int32_t i
        if self._rated_slice == self._rate._now:
            return
        self._rated_slice = self._rate._now
        for i in range(self.num_replicas):
            if self._rates.get(i) < INFINITY:
                self._rates.set(i, self._rate.sums[i])

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self._rate.advance(now_ns)
        self._rate.add(replica, 1.0)
        if self._rates.get(replica) < INFINITY:
            self._rates.set(replica, self._rate.sums[replica])
        return 0
