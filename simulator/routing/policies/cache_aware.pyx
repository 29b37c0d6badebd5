"""`cache_aware`: by cached prefixes while the load is even, by load when it is not."""
from libc.math cimport INFINITY
from libc.stdint cimport INT32_MAX, int32_t, int64_t
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.core.tied_minima cimport TiedMinima
from simulator.domain.replica_state cimport ReplicaAccount
from simulator.routing.parts.pick cimport pick_least
from simulator.routing.parts.prefix_router cimport PrefixRouter

from simulator.routing.parts.prefix_router import Capacity


class CacheAwareParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two rules, and the conditions of each; the load is the requests in flight.

    If most - least > balance_abs_threshold and most > balance_rel_threshold x least: the least loaded. Else, if a
    replica was sent more than the share cache_threshold of the prompt: the one that was sent most of it, the least
    loaded of several. Else `otherwise`.
    Source: cache_aware of the SGLang router (sgl-project/sglang, sgl-model-gateway/src/policies/cache_aware.rs; release
    0.3.2, which takes the least loaded below the threshold) and of the vLLM router, which set the default thresholds.
    They compare characters of text; here it is whole blocks.
    """

    balance_abs_threshold: Annotated[int, Meta(ge=0, le=2**30, description=(
        "difference of requests in flight up to which the load is even"))] = 64
    balance_rel_threshold: Annotated[float, Meta(ge=1, le=1e6, description=(
        "ratio of requests in flight up to which the load is even"))] = 1.5
    cache_threshold: Annotated[float, Meta(ge=0, le=1, description="share of the prompt that makes the choice")] = 0.3
    otherwise: Annotated[Literal["smallest_tree", "least_loaded"], Meta(description=(
        "least_loaded: the replica with the fewest requests in flight (SGLang 0.3.2); smallest_tree: the replica with "
        "the fewest remembered blocks, the choice of earlier versions"))] = "least_loaded"
    capacity_blocks: Capacity = 1_000_000


@cython.final
cdef class CacheAware(PrefixRouter):
    """The replica that was sent this prefix, while the load is even."""

    Parameters = CacheAwareParameters
    counts_promised = True

    cdef int32_t _abs_threshold
    cdef double _rel_threshold, _cache_threshold
    cdef bint _takes_smallest
    cdef TiedMinima _loads      # requests in flight, infinity: closed
    cdef TiedMinima _most       # requests in flight, negative
    cdef TiedMinima _sizes      # blocks remembered, infinity: closed

    def __init__(self, parameters, context):
        self._loads, self._most = TiedMinima(self.num_replicas), TiedMinima(self.num_replicas)
        self._sizes = TiedMinima(self.num_replicas)
        self.view.wants_in_flight = True
        self._abs_threshold = parameters.balance_abs_threshold
        self._rel_threshold = parameters.balance_rel_threshold
        self._cache_threshold = parameters.cache_threshold
        self._takes_smallest = parameters.otherwise == "smallest_tree"
        self.reads_state = self.has_scores = True

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t best = 0, i
        self._refresh()
        if self._loads.least() == INFINITY:
            return -1
        if not self._is_even(<int32_t>self._loads.least(), -<int32_t>self._most.least()):
            return pick_least(self._loads, self.draws)
        self.index.match(row, self.matched)
        for i in range(self.num_replicas):
            if self.matched[i] > best and self.view.accounts[i].is_routable:
                best = self.matched[i]
        if best > self._cache_threshold * self.index.num_blocks(row):
            return self._pick_matched(best)
        if self._takes_smallest:
            return pick_least(self._sizes, self.draws)
        return pick_least(self._loads, self.draws)

    cdef void _refresh(self) noexcept nogil:
        """Take in which replicas opened or closed, got or lost a request."""
        cdef const ReplicaAccount* account
        cdef int32_t i, replica
        for i in range(self.view.num_changed):
            replica = self.view.changed[i]
            account = &self.view.accounts[replica]
            self._loads.set(replica, account.in_flight if account.is_routable else INFINITY)
            self._most.set(replica, -account.in_flight if account.is_routable else INFINITY)
            self._sizes.set(replica, self.index.size(replica) if account.is_routable else INFINITY)
        self.view.forget_changes()

    cdef inline bint _is_even(self, int32_t least, int32_t most) noexcept nogil:
        return most - least <= self._abs_threshold or most <= self._rel_threshold * least

    cdef int32_t _pick_matched(self, int32_t best) noexcept nogil:
        """Return the least loaded of the open replicas that have `blocks` blocks, any of several."""
        cdef double least = INFINITY
        cdef int32_t ties = 0, i
        for i in range(self.num_replicas):
            if self.matched[i] == best and self._loads.get(i) <= least:
                ties = ties + 1 if self._loads.get(i) == least else 1
                least = self._loads.get(i)
        ties = self.draws.below(ties) if ties > 1 else 0
        for i in range(self.num_replicas):
            if self.matched[i] == best and self._loads.get(i) == least:
                if ties == 0:
                    return i
                ties -= 1
        return -1

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self.index.touch(row, replica)
        self.view.mark(replica)         # its size, too
        return 0

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t least = INT32_MAX, most = 0, best = 0, i
        for i in range(self.num_replicas):
            if self.view.accounts[i].is_routable:
                least = min(least, self.view.accounts[i].in_flight)
                most = max(most, self.view.accounts[i].in_flight)
        if self._is_even(least, most):
            self.index.match(row, self.matched)
            for i in range(self.num_replicas):
                if self.view.accounts[i].is_routable:
                    best = max(best, self.matched[i])
            if best <= self._cache_threshold * self.index.num_blocks(row):
                best = -1
        for i in range(self.num_replicas):
            if not self.view.accounts[i].is_routable or (best > 0 and self.matched[i] < best):
                scores[i] = -INFINITY
            elif best < 0 and self._takes_smallest:
                scores[i] = -self.index.size(i)
            else:
                scores[i] = -self.view.accounts[i].in_flight
        return 0
