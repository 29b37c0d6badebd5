"""`consistent_hash`: all requests with one key go to one replica."""
from libc.math cimport ceil
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.core.draws cimport mix
from simulator.domain.request cimport Demand
from simulator.kv.content cimport Cursor
from simulator.routing.base cimport Router
from simulator.routing.parts.hash_ring cimport HashRing

cdef enum Key:                  # source of the hash
    SESSION = 0
    TENANT = 1
    SLO_CLASS = 2
    MODEL = 3
    ADAPTER = 4
    PROMPT = 5
    ROW = 6                     # the request itself: it lacks the key

_KEYS = {"session": SESSION, "tenant": TENANT, "slo_class": SLO_CLASS, "model": MODEL, "adapter": ADAPTER,
         "prompt": PROMPT}


class ConsistentHashParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ring of hashes on which each replica owns arcs.

    A closed replica leaves its arcs to the next ones.
    Source: consistent_hash of the vLLM router; Karger et al., STOC 1997; bounded loads: Mirrokni, Thorup,
    Zadimoghaddam, SODA 2018.
    """

    key: Annotated[Literal["session", "tenant", "slo_class", "model", "adapter", "prompt"], Meta(description=(
        "key that is hashed; a request without it is hashed by itself"))] = "session"
    prefix_tokens: Annotated[int, Meta(ge=1, le=2**20, description=(
        'hashed prompt tokens, for key = "prompt"; equal prompts under different adapters are different'))] = 256
    points_per_replica: Annotated[int, Meta(ge=1, le=4096, description=(
        "points of each replica on the ring; more spread the keys more evenly"))] = 160
    max_load_factor: Annotated[Annotated[float, Meta(ge=1, le=1e6)] | None, Meta(description=(
        "a replica with more than this times the mean requests in flight is passed over; default: none is"))] = None


cdef int32_t code_of(Key key, const Demand* demand) noexcept nogil:
    """Return the code of a key of a request, -1 if it has none."""
    if key == SESSION:
        return demand.session
    if key == TENANT:
        return demand.tenant
    if key == SLO_CLASS:
        return demand.slo_class
    if key == MODEL:
        return demand.model
    return demand.adapter if key == ADAPTER else -1


@cython.final
cdef class ConsistentHash(Router):
    """The replica that owns the hash of a request's key."""

    Parameters = ConsistentHashParameters

    cdef Key _key
    cdef int32_t _prefix_tokens
    cdef double _factor         # 0: no bound
    cdef HashRing _ring
    cdef int64_t _in_flight     # requests, all replicas

    def __init__(self, parameters, context):
        self._key = _KEYS[parameters.key]
        self._prefix_tokens = parameters.prefix_tokens
        self._factor = parameters.max_load_factor or 0.0
        self._ring = HashRing(self.num_replicas, parameters.points_per_replica)
        self.reads_state = self._factor > 0

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t limit = INT32_MAX, num_open = 0, i
        if self._factor > 0:
            for i in range(self.num_replicas):
                num_open += self.view.accounts[i].is_routable
            limit = <int32_t>min(ceil(self._factor * (self._in_flight + 1) / max(num_open, 1)), <double>INT32_MAX)
        return self._ring.owner(self._hash(row), self.view, limit)

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self._in_flight += 1
        return 0

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self._in_flight -= 1
        return 0

    cdef uint64_t _hash(self, int32_t row) noexcept nogil:
        cdef Key key = self._key
        cdef int32_t code = row
        cdef Cursor cursor
        if key == PROMPT:
            cursor.hash, cursor.offset, cursor.piece = 0, 0, 0
            return self.content.advance(row, min(self._prefix_tokens, self.requests[row].prompt_tokens), &cursor)
        if code_of(key, &self.demands[row]) >= 0:
            code = code_of(key, &self.demands[row])
        else:
            key = ROW
        return mix((<uint64_t>key << 32) + <uint64_t>code + 1)
