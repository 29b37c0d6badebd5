"""`prefixaware`: the replica that was sent the longest beginning of the prompt."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.routing.parts.prefix_router cimport PrefixRouter
from simulator.core.sliding_sums cimport SlidingSums

from simulator.routing.parts.prefix_router import Capacity


class PrefixawareParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The longest match wins, any of several.

    A shorter one than min_match_tokens counts as none. Without a match: the replica that got the fewest requests within
    `rate_window_s`.
    Source: PrefixAwareRouter of vllm-project/production-stack at a6c01db0 (src/vllm_router/routers/routing_logic.py).
    Its trie compares chunks of 128 characters, the last one shorter, and never forgets; here it is blocks.
    counts_rest and ties = "first" are its rules.
    """

    min_match_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "tokens of the prompt that must match; 0: any replica will do if none matches"))] = 0
    rate_window_s: Annotated[float, Meta(gt=0, le=1e6, description=(
        "window over which the rate of requests is taken"))] = 60.0
    counts_rest: Annotated[bool, Meta(description=(
        "the tokens behind the last whole block of a prompt count as a whole block; they match prompts that end with "
        "them"))] = False
    ties: Annotated[Literal["random", "first"], Meta(description=(
        "choice among replicas that got equally few requests: any, or the first"))] = "random"
    capacity_blocks: Capacity = 1_000_000


@cython.final
cdef class Prefixaware(PrefixRouter):
    """The replica that was sent the longest beginning of the prompt."""

    Parameters = PrefixawareParameters

    cdef int32_t _min_tokens
    cdef SlidingSums _rate      # requests sent, by replica
    cdef bint _is_match         # of the last scores
    cdef bint _takes_first

    def __init__(self, parameters, context):
        self._takes_first = parameters.ties == "first"
        self._min_tokens = parameters.min_match_tokens
        self._rate = SlidingSums(self.num_replicas, parameters.rate_window_s)
        self.has_scores = True

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t best = -1, i
        self.score(row, now_ns, self.preference)
        if self._is_match or not self._takes_first:
            return self.pick_preferred()
        for i in range(self.num_replicas):
            if self.preference[i] > (self.preference[best] if best >= 0 else -INFINITY):
                best = i
        return best

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t best = 0, i
        self.index.match(row, self.matched)
        for i in range(self.num_replicas):
            if self.view.accounts[i].is_routable:
                best = max(best, self.matched[i])
        self._is_match = <int64_t>best * self.index.block_size >= self._min_tokens
        self._rate.advance(now_ns)
        for i in range(self.num_replicas):
            if not self.view.accounts[i].is_routable:
                scores[i] = -INFINITY
            else:
                scores[i] = self.matched[i] if self._is_match else -self._rate.sums[i]
        return 0

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self._rate.advance(now_ns)
        self._rate.add(replica, 1.0)
        self.index.touch(row, replica)
        return 0
