"""Scorers by the cached part of the prompt on each replica, known or presumed."""
from libc.math cimport NAN
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.core.index_list cimport NONE, IndexLinks, IndexList, new_list
from simulator.routing.parts.holders cimport holders
from simulator.routing.parts.pick cimport highest, lowest
from simulator.routing.parts.prefix_index cimport PrefixIndex
from simulator.routing.scoring.base cimport Scorer
from simulator.signals.media cimport DEVICE, DISK, HOST, NUM_MEDIA, SHARED

from simulator.routing.parts.prefix_router import BlockTokens, Capacity


TierWeight = Annotated[float, Meta(ge=0, le=1)]


class PrefixAffinityParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score the share of the prompt that was sent to the replica before.

    r = leading whole blocks of the prompt that the router remembers / whole blocks of the prompt; with a length_weight
    w, the score is w l + (1 - w) r, l = min(1, remembered tokens / scale_tokens)^2.
    Source: BLIS's prefix-affinity (10,000 blocks a replica), llm-d's prefix-cache-scorer (31,250; w and its scale in
    llm-d-router ebab6879).
    """

    capacity_blocks: Capacity = 10_000
    max_blocks: Annotated[int, Meta(ge=1, le=2**31 - 1, description=(
        "blocks of a prompt that are looked at; llm-d: 256"))] = 2**31 - 1
    block_tokens: BlockTokens = 0
    length_weight: Annotated[float, Meta(ge=0, le=1, description=(
        "weight of the length of the remembered prefix, against its share of the prompt"))] = 0.0
    scale_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1, description=(
        "with length_weight: remembered tokens that are worth 1"))] = 8192


@cython.final
cdef class PrefixAffinity(Scorer):
    """A replica that was sent this prefix is better."""

    Parameters = PrefixAffinityParameters

    cdef PrefixIndex _index
    cdef int32_t* _matched
    cdef int32_t _max_blocks
    cdef double _length_weight, _scale_tokens

    def __cinit__(self, parameters, context):
        self._matched = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        if self._matched == NULL:
            raise MemoryError()

    def __init__(self, parameters, context):
        self._index = PrefixIndex(context, parameters.capacity_blocks, block_tokens=parameters.block_tokens)
        self._max_blocks = parameters.max_blocks
        self._length_weight, self._scale_tokens = parameters.length_weight, parameters.scale_tokens
        self.is_per_request = self.lists_some = True

    def __dealloc__(self):
        free(self._matched)

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t num_blocks = min(self._index.num_blocks(row), self._max_blocks), i
        if self._index.match(row, self._matched) == 0:
            return 0
        for i in range(self.num_replicas):
            self.values[i] = self._worth(min(self._matched[i], num_blocks), num_blocks)
        return 1

    cdef int32_t rate_some(self, int32_t row, int64_t now_ns, int32_t* listed, double* rest) except -2 nogil:
        cdef int32_t num_blocks = min(self._index.num_blocks(row), self._max_blocks), count, i
        rest[0] = 0.0
        count = self._index.match_some(row, self._matched, listed)
        for i in range(count):
            self.values[listed[i]] = self._worth(min(self._matched[listed[i]], num_blocks), num_blocks)
        return count

    cdef inline double _worth(self, int32_t matched, int32_t num_blocks) noexcept nogil:
        cdef double share = <double>matched / num_blocks, length
        if self._length_weight == 0:
            return share
        length = min(1.0, matched * self._index.block_size / self._scale_tokens)
        return self._length_weight * length * length + (1.0 - self._length_weight) * share

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self._index.touch(row, replica)
        return 0

    cdef int closed(self, int32_t replica, int64_t now_ns) except -1 nogil:
        self._index.forget(replica)
        return 0


class PrecisePrefixCacheParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score (c - least) / (most - least) of c blocks in the KV cache.

    c: leading whole blocks of the prompt in the KV cache of the replica; with a weight for content of [kv_tiers], all
    leading blocks that it has anywhere, each counted with its largest weight: 1 in the KV cache. The view of caches may
    be as old as cache_signal_delay_s says.
    Source: BLIS's precise-prefix-cache, which sees no tiers, and llm-d's, with weights 0.8 for host memory, 0.3 for
    disks, 0.4 for shared stores (llm-d-kv-cache, pkg/kvcache, 2026).
    """

    if_equal: Annotated[Literal["one", "half_if_none"], Meta(description=(
        "score of all if they are equal: 1; or 0.5 if nothing is cached anywhere, as in BLIS 0.7.1"))] = "one"
    host_weight: Annotated[TierWeight, Meta(description="weight of a block in host memory; llm-d: 0.8")] = 0.0
    disk_weight: Annotated[TierWeight, Meta(description=(
        "weight of a block on a disk of the replica's own; llm-d: 0.3"))] = 0.0
    shared_weight: Annotated[TierWeight, Meta(description=(
        "weight of a block in a store that replicas share; llm-d: 0.4"))] = 0.0


@cython.final
cdef class PrecisePrefixCache(Scorer):
    """A replica that has the beginning of the prompt in its cache is better."""

    Parameters = PrecisePrefixCacheParameters

    tier_keys = ("host_weight", "disk_weight", "shared_weight")

    cdef double _score_of_none
    cdef double* _cached        # [replica] NaN: closed
    cdef int8_t* _is_open       # [replica]
    cdef int32_t _num_open
    cdef double[NUM_MEDIA] _weights
    cdef int8_t[NUM_MEDIA] _order       # [_num_ordered] media, the heaviest first
    cdef int32_t _num_ordered

    def __cinit__(self, parameters, context):
        self._cached = <double*>calloc(self.num_replicas, sizeof(double))
        self._is_open = <int8_t*>calloc(self.num_replicas, sizeof(int8_t))
        if self._cached == NULL or self._is_open == NULL:
            raise MemoryError()

    def __init__(self, parameters, context):
        self._score_of_none = 0.5 if parameters.if_equal == "half_if_none" else 1.0
        self.is_per_request = True
        self.view.wants_caches = True
        weights = dict(zip((DEVICE, HOST, DISK, SHARED), (
            1.0, *(getattr(parameters, key) for key in self.tier_keys)), strict=True))
        for medium, weight in sorted(weights.items(), key=lambda item: -item[1]):
            self._weights[<int>medium] = weight
            if weight > 0:
                self._order[self._num_ordered] = medium
                self._num_ordered += 1
        self.view.wants_tiers |= self._num_ordered > 1
        self.lists_some = True

    def __dealloc__(self):
        free(self._cached)
        free(self._is_open)

    cdef int note(self, int32_t replica, bint is_open) except -1 nogil:
        self._num_open += <int32_t>is_open - self._is_open[replica]
        self._is_open[replica] = is_open
        return 0

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef double least, most
        cdef int32_t i
        self._count(row, now_ns)
        for i in range(self.num_replicas):
            if not self.takes_part(i):
                self._cached[i] = NAN
        least, most = lowest(self._cached, self.num_replicas), highest(self._cached, self.num_replicas)
        for i in range(self.num_replicas):
            if most > least:
                self.values[i] = (self._cached[i] - least) / (most - least)
            else:
                self.values[i] = 1.0 if most > 0 else self._score_of_none
        return 1

    cdef int32_t rate_some(self, int32_t row, int64_t now_ns, int32_t* listed, double* rest) except -2 nogil:
        cdef const int32_t* cached
        cdef int32_t least = 0, most = 0, num_holders, num_open = 0, i
        if self._num_ordered > 1 and self.view.has_tiers:
            return -1
        cached = self.view.cached_everywhere(row, now_ns)
        num_holders = holders(cached, self.num_replicas, listed)
        for i in range(num_holders):
            if self._is_open[listed[i]]:
                listed[num_open] = listed[i]
                num_open += 1
                most = max(most, cached[listed[i]])
        if num_open == self._num_open and num_open > 0:
            least = most
            for i in range(num_open):
                least = min(least, cached[listed[i]])
        rest[0] = 0.0
        if most == least:
            rest[0] = 1.0 if most > 0 else self._score_of_none
            return 0
        for i in range(num_open):
            self.values[listed[i]] = (<double>cached[listed[i]] - least) / (<double>most - least)
        return num_open

    cdef int _count(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Count the blocks of a prompt on each replica."""
        cdef const int32_t* cached
        cdef int32_t i, k
        if self._num_ordered == 1 or not self.view.has_tiers:
            cached = self.view.cached_everywhere(row, now_ns)
            for i in range(self.num_replicas):
                self._cached[i] = cached[i]
            return 0
        cached = self.view.best_tiers(row, self._order, self._num_ordered, now_ns)
        for i in range(self.num_replicas):
            self._cached[i] = 0.0
            for k in range(self._num_ordered):
                self._cached[i] += self._weights[self._order[k]] * cached[self._order[k] * self.num_replicas + i]
        return 0


class NoHitLruParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score 0.5 if any replica has a block of the prompt, else by turns.

    The score of a cold prompt is 1 - rank / (n - 1). Rank 0 has the replica that was least recently sent such a cold
    request, those never sent one first, in order of their number.
    Source: BLIS's and llm-d's no-hit-lru-scorer.
    """


@cython.final
cdef class NoHitLru(Scorer):
    """Requests that no cache can help go round."""

    Parameters = NoHitLruParameters

    cdef IndexLinks _links
    cdef IndexList _used        # replicas that were sent a cold request, the latest at the end
    cdef int32_t _cold_row      # the request rated last, if it was cold; -1

    def __init__(self, parameters, context):
        self._links, self._used = IndexLinks(), new_list()
        self._links.grow(self.num_replicas)
        self._cold_row = -1
        self.is_per_request = True
        self.view.wants_caches = True

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef const int32_t* cached = self.view.cached_everywhere(row, now_ns)
        cdef int32_t num_open = 0, rank = 0, i
        cdef bint is_warm = False
        for i in range(self.num_replicas):
            if self.takes_part(i):
                num_open += 1
                is_warm = is_warm or cached[i] > 0
        self._cold_row = -1 if is_warm else row
        if is_warm or num_open == 1:
            for i in range(self.num_replicas):
                self.values[i] = 0.5 if is_warm else 1.0
            return 1
        for i in range(self.num_replicas):
            if not self._links.is_linked(i):
                rank = self._place(i, rank, num_open)
        i = self._used.head
        while i != NONE:
            rank = self._place(i, rank, num_open)
            i = self._links.next(i)
        return 1

    cdef int32_t _place(self, int32_t replica, int32_t rank, int32_t num_open) noexcept nogil:
        """Score the replica that has this rank if it is a candidate; return the next rank."""
        if not self.takes_part(replica):
            return rank
        self.values[replica] = 1.0 - <double>rank / (num_open - 1)
        return rank + 1

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        if row == self._cold_row:
            self.closed(replica, now_ns)
            self._links.push_back(&self._used, replica)
            self._cold_row = -1
        return 0

    cdef int closed(self, int32_t replica, int64_t now_ns) except -1 nogil:
        if self._links.is_linked(replica):
            self._links.remove(&self._used, replica)
        return 0
