"""`manual`: requests with one key stay at the replica that the key was given first."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.core.clock cimport ns_from_s
from simulator.core.draws cimport mix
from simulator.core.hash_map cimport HashMap
from simulator.routing.parts.scored_router cimport ScoredRouter

cdef enum Assignment:
    RANDOM = 0
    MIN_LOAD = 1
    MIN_GROUP = 2

_ASSIGNMENTS = {"random": RANDOM, "min_load": MIN_LOAD, "min_group": MIN_GROUP}
Seconds = Annotated[float, Meta(ge=0, le=1e6)]


class ManualParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key stays at its replica, however many replicas are added.

    A key remembers the last two replicas that it was given. Its requests go to the older one if it is open, else to the
    other; if both are closed, and for a new key, the key is given a replica: any, or one with the fewest requests in
    flight, or with the fewest keys in flight, drawn of several. Every eviction_interval_s the keys without a request
    for max_idle_s are forgotten. A request without a key goes to any replica.
    Source: manual of SGLang's gateway (sgl-project/sglang, sgl-model-gateway/src/policies/manual@0091690b.rs), which
    reads the key from the header X-SMG-Routing-Key; here it is the session or the tenant.
    """

    key: Annotated[Literal["session", "tenant"], Meta(description="key of a request")] = "session"
    assignment: Annotated[Literal["random", "min_load", "min_group"], Meta(description=(
        "replica of a key without an open one: random: any; min_load: the fewest requests in flight; min_group: the "
        "fewest keys with requests in flight"))] = "random"
    max_idle_s: Annotated[Seconds, Meta(description=(
        "time without a request after which a key is forgotten; 0: never"))] = 14400.0
    eviction_interval_s: Annotated[Seconds, Meta(description="time between two looks for idle keys; 0: never")] = 60.0


cdef struct Bound:              # a key
    int64_t used_ns             # its last request
    int32_t first               # replica + 1, 0: none; the one that is taken if both are open
    int32_t second


@cython.final
cdef class Manual(ScoredRouter):
    """The replica that a key was given."""

    Parameters = ManualParameters
    counts_promised = True

    cdef bint _is_session
    cdef Assignment _assignment
    cdef int64_t _max_idle_ns, _interval_ns     # 0: no key is forgotten
    cdef Bound* _bound          # [key]
    cdef int32_t* _groups       # [replica] keys in flight there
    cdef HashMap _in_flight     # requests of a key at a replica

    def __cinit__(self, parameters, context):
        self._is_session = parameters.key == "session"
        num_keys = int(context.workload.demands[parameters.key].max(initial=-1)) + 1
        self._bound = <Bound*>calloc(num_keys + 1, sizeof(Bound))
        self._groups = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        if self._bound == NULL or self._groups == NULL:
            raise MemoryError()

    def __init__(self, parameters, context):
        self._assignment, self._in_flight = _ASSIGNMENTS[parameters.assignment], HashMap()
        self._max_idle_ns = ns_from_s(parameters.max_idle_s)
        self._interval_ns = ns_from_s(parameters.eviction_interval_s)

    def __dealloc__(self):
        free(self._bound)
        free(self._groups)

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t replica = self._replica_of(self._key_of(row), now_ns)
        if replica >= 0:
            return replica
        self.score(row, now_ns, self.preference)
        return self.pick_preferred()

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t key = self._key_of(row), kept = self._replica_of(key, now_ns), i
        cdef Assignment assignment = self._assignment if key >= 0 else RANDOM
        for i in range(self.num_replicas):
            if not self.view.accounts[i].is_routable or (kept >= 0 and i != kept):
                scores[i] = -INFINITY
            elif assignment == MIN_LOAD:
                scores[i] = -self.view.accounts[i].in_flight
            else:
                scores[i] = -self._groups[i] if assignment == MIN_GROUP else 0.0
        return 0

    cdef inline int32_t _key_of(self, int32_t row) noexcept nogil:
        return self.demands[row].session if self._is_session else self.demands[row].tenant

    cdef inline bint _is_open(self, int32_t place) noexcept nogil:
        return place > 0 and self.view.accounts[place - 1].is_routable

    cdef int32_t _replica_of(self, int32_t key, int64_t now_ns) noexcept nogil:
        """Return the open replica of a key; -1: it has none, is forgotten, or is missing."""
        cdef const Bound* bound = &self._bound[max(key, 0)]
        if key < 0 or self._is_forgotten(bound, now_ns):
            return -1
        if self._is_open(bound.first):
            return bound.first - 1
        return bound.second - 1 if self._is_open(bound.second) else -1

    cdef bint _is_forgotten(self, const Bound* bound, int64_t now_ns) noexcept nogil:
        """Return whether a look for idle keys has come since the key became idle."""
        cdef int64_t idle_ns = bound.used_ns + self._max_idle_ns, look_ns
        if self._max_idle_ns == 0 or self._interval_ns == 0:
            return False
        look_ns = (idle_ns + self._interval_ns - 1) // self._interval_ns * self._interval_ns
        return look_ns <= now_ns

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t key = self._key_of(row)
        cdef Bound* bound = &self._bound[max(key, 0)]
        if key < 0:
            return 0
        if self._is_forgotten(bound, now_ns):
            bound.first = bound.second = 0
        bound.used_ns = now_ns
        if bound.first == 0:
            bound.first = replica + 1
        elif bound.first != replica + 1 and bound.second != replica + 1:
            if bound.second > 0:
                bound.first = bound.second
            bound.second = replica + 1
        return self._count(key, replica, 1)

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t key = self._key_of(row)
        return self._count(key, replica, -1) if key >= 0 else 0

    cdef int moved(self, int32_t row, int32_t before, int32_t after, int64_t now_ns) except -1 nogil:
        cdef int32_t key = self._key_of(row)
        if key >= 0:            # its key stays where it is
            self._count(key, before, -1)
            self._count(key, after, 1)
        return 0

    cdef int _count(self, int32_t key, int32_t replica, int32_t change) except -1 nogil:
        """Count a request of a key at a replica."""
        cdef uint64_t code = mix(((<uint64_t>key << 32) | <uint64_t>replica) + 1)
        cdef int32_t before = max(self._in_flight.get(code), 0)
        if before + change > 0:
            self._in_flight.put(code, before + change)
        else:
            self._in_flight.remove(code)
        self._groups[replica] += (before + change > 0) - (before > 0)
        return 0
