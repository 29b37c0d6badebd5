"""`lmetric`: the least product of new prompt tokens and load."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
cimport cython

import msgspec

from simulator.routing.parts.prefix_router cimport PrefixRouter

from simulator.routing.parts.prefix_router import Capacity


class LmetricParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The least product of new tokens and load wins.

    (prompt tokens - tokens that were sent there before) x (requests in flight + 1). Of equal replicas, the fewest
    requests in flight win, then the fewest new tokens, then the lowest number.
    Source: lmetric of SGLang's gateway (sgl-project/sglang, sgl-model-gateway/src/policies/lmetric@acaa759a.rs), which
    compares characters of text; here it is whole blocks.
    """

    capacity_blocks: Capacity = 1_000_000


@cython.final
cdef class Lmetric(PrefixRouter):
    """The replica with the least new work, in view of its load."""

    Parameters = LmetricParameters
    counts_promised = True

    def __init__(self, parameters, context):
        self.reads_state = self.has_scores = True

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef double least = INFINITY
        cdef int32_t best = -1, i, load
        self.score(row, now_ns, self.preference)
        for i in range(self.num_replicas):
            if self.preference[i] == -INFINITY or -self.preference[i] > least:
                continue
            load = self.view.accounts[i].in_flight
            if best < 0 or -self.preference[i] < least or load < self.view.accounts[best].in_flight or (
                    load == self.view.accounts[best].in_flight and self.matched[i] > self.matched[best]):
                best, least = i, -self.preference[i]
        return best

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int64_t new_tokens
        cdef int32_t i
        self.index.match(row, self.matched)
        for i in range(self.num_replicas):
            new_tokens = self.requests[row].prompt_tokens - <int64_t>self.matched[i] * self.index.block_size
            scores[i] = (-<double>(new_tokens * (self.view.accounts[i].in_flight + 1))
                         if self.view.accounts[i].is_routable else -INFINITY)
        return 0
