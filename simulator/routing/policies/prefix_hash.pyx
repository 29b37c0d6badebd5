"""`prefix_hash`: the replica that owns the hash of the first tokens of a prompt, unless it is overloaded."""
from libc.math cimport INFINITY
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t
cimport cython

from typing import Annotated

import msgspec
from msgspec import Meta
import numpy as np

from simulator.domain.request cimport Demand, Segment
from simulator.kv.content cimport Cursor
from simulator.routing.base cimport Router
from simulator.routing.parts.hash_ring cimport HashRing


class PrefixHashParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The owner of the hash of the first tokens on a ring, unless overloaded.

    A replica is overloaded with more than load_factor x (requests in flight at all open replicas + 1) / open replicas.
    Then the least loaded that is not overloaded gets the request, the lowest number of several; if all are overloaded,
    the owner. With `consistent_hash` and max_load_factor the next on the ring gets it.
    Source: prefix_hash of SGLang's gateway (sgl-project/sglang,
    sgl-model-gateway/src/policies/prefix_hash@065f331f.rs).
    """

    prefix_tokens: Annotated[int, Meta(ge=1, le=2**20, description=(
        "hashed prompt tokens; equal prompts under different adapters are different"))] = 256
    load_factor: Annotated[float, Meta(ge=1, le=1e6, description=(
        "multiple of the mean requests in flight above which a replica is overloaded"))] = 1.25
    points_per_replica: Annotated[int, Meta(ge=1, le=4096, description=(
        "points of each replica on the ring; more spread the prompts more evenly"))] = 160


def shared_tokens(workload):
    """Return how many leading tokens of each client's prompt other requests have, too.

    Unlike `Content.public_tokens`, by the texts alone: prompts that may be computed again are no others' for it.
    """
    cdef const Demand[::1] demands = workload.demands
    cdef const Segment[::1] segments = workload.segments
    cdef int32_t count = <int32_t>(len(workload.requests) - workload.num_prefill_legs), row, owner
    cdef int32_t[::1] shared = np.zeros(count, np.int32)
    cdef int64_t i, tokens
    for row in range(count):                # up to its own stream, which only its own prompt has so far
        tokens = 0
        for i in range(demands[row].segments_begin, demands[row].segments_begin + demands[row].num_segments):
            if segments[i].stream & 3 and segments[i].stream >> 2 == row:
                break
            tokens += segments[i].num_tokens
        shared[row] = <int32_t>min(tokens, INT32_MAX)
    for row in range(count):
        for i in range(demands[row].segments_begin, demands[row].segments_begin + demands[row].num_segments):
            owner = <int32_t>min(segments[i].stream >> 2, INT32_MAX)
            if segments[i].stream & 3 and owner != row and 0 <= owner < count:
                shared[owner] = INT32_MAX   # others go on from its text
    return np.asarray(shared)


@cython.final
cdef class PrefixHash(Router):
    """The replica that owns the beginning of a prompt."""

    Parameters = PrefixHashParameters
    counts_promised = True

    cdef int32_t _prefix_tokens
    cdef double _factor
    cdef HashRing _ring
    cdef int32_t[::1] _shared_tokens    # [client's row] leading tokens of its prompt that others have, too
    cdef uint64_t[::1] _own_texts       # [client's row] hash of hashed text that no other has; 0: not drawn yet

    def __init__(self, parameters, context):
        self._prefix_tokens, self._factor = parameters.prefix_tokens, parameters.load_factor
        self._ring = HashRing(self.num_replicas, parameters.points_per_replica)
        self._shared_tokens = shared_tokens(context.workload)
        self._own_texts = np.zeros(len(self._shared_tokens), np.uint64)
        self.reads_state = self.has_scores = True

    cdef uint64_t _hash(self, int32_t row) noexcept nogil:
        """Return the hash of the first tokens of a prompt; that of text that no other request has is drawn."""
        cdef Cursor cursor
        cdef int32_t hashed = min(self._prefix_tokens, self.requests[row].prompt_tokens)
        cdef int32_t num_clients = <int32_t>len(self._shared_tokens), client
        client = row if row < num_clients else row - num_clients        # a prefill leg has the prompt of its client
        cursor.hash, cursor.offset, cursor.piece = 0, 0, 0
        if self._shared_tokens[client] >= hashed:
            return self.content.advance(row, hashed, &cursor)
        while self._own_texts[client] == 0:
            self._own_texts[client] = self.draws.bits()
        return self._own_texts[client]

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t owner = self._ring.owner(self._hash(row), self.view, INT32_MAX), best = -1, i
        cdef double limit = self._limit()
        if owner < 0 or self.view.accounts[owner].in_flight <= limit:
            return owner
        for i in range(self.num_replicas):
            if (self.view.accounts[i].is_routable and self.view.accounts[i].in_flight <= limit
                    and (best < 0 or self.view.accounts[i].in_flight < self.view.accounts[best].in_flight)):
                best = i
        return best if best >= 0 else owner

    cdef double _limit(self) noexcept nogil:
        """Return the requests in flight above which a replica is overloaded."""
        cdef int64_t total = 0
        cdef int32_t num_open = 0, i
        for i in range(self.num_replicas):
            if self.view.accounts[i].is_routable:
                total += self.view.accounts[i].in_flight
                num_open += 1
        return self._factor * (total + 1) / max(num_open, 1)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t chosen = self.route(row, now_ns), i
        for i in range(self.num_replicas):
            scores[i] = <double>(i == chosen) if self.view.accounts[i].is_routable else -INFINITY
        return 0
