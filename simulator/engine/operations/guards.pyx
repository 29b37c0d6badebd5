"""Replicas that get no requests for a while after failures: cooldowns and circuit breakers.

A failure is a request that its client gave up at the replica, that the engine refused for a full queue, or that lost
its replica; a prompt that does not fit is none. All ranks of a replica are one. Each instance of a gateway counts the
failures of its own requests, and keeps its own requests from a replica.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.domain.journey cimport KV_LOAD_FAILED, NO_CAUSE
from simulator.domain.request cimport COMPLETED, FAILED, REJECTED, TIMED_OUT
from simulator.engine.fleet.events cimport LIFECYCLE
from simulator.engine.operations.lifecycle cimport BREAKER, COOLDOWN, UNBARRED
from simulator.routing.instances.base cimport Assignment

from functools import partial

from simulator.domain.guards import Circuit

cdef enum:
    HTTP_TIMEOUT = 408
    HTTP_LOST = 500
    HTTP_FULL = 503

cdef int64_t MINUTE_NS = 60000000000


def routers_of(gateway):
    """Return the router among the instances of a gateway; a second may choose ranks."""
    return getattr(gateway.router, "first", gateway.router)


def _assignment_of(gateway):
    """Return the Assignment of requests to the instances of a gateway; None: it has one."""
    return getattr(routers_of(gateway), "assignment", None)


@cython.final
cdef class Guards:
    """The cooldowns and breakers of a cluster.

    fleet, agenda, lifecycle : of the cluster.
    cooldown, breaker : domain.guards.Cooldown and Breaker; None: there is none.
    """

    def __cinit__(self, Fleet fleet, Agenda agenda, Lifecycle lifecycle, *_):
        assignments = [_assignment_of(place.gateway) for place in lifecycle.places]
        self._num_slots = fleet.num_replicas * max([1 if each is None else each.count for each in assignments])
        self._assignments = <void**>calloc(fleet.num_replicas, sizeof(void*))
        self._successes = <int64_t*>calloc(self._num_slots, sizeof(int64_t))
        self._failures = <int64_t*>calloc(self._num_slots, sizeof(int64_t))
        self._on_trial = <int8_t*>calloc(self._num_slots, sizeof(int8_t))
        if self._assignments == NULL or self._successes == NULL or self._failures == NULL or self._on_trial == NULL:
            raise MemoryError()
        for i, assignment in enumerate(assignments):
            if assignment is not None:
                self._assignments[<int32_t>i] = <void*>assignment

    def __init__(self, Fleet fleet, Agenda agenda, Lifecycle lifecycle, cooldown, breaker):
        self._fleet, self._agenda, self._lifecycle, self._cooldown = fleet, agenda, lifecycle, cooldown
        self._cools_until = {}
        if breaker is not None:
            self._circuits = [Circuit(breaker) for _ in range(self._num_slots)]
            self._open_ns = round(breaker.open_s * 1e9)

    def __dealloc__(self):
        free(self._assignments)
        free(self._successes)
        free(self._failures)
        free(self._on_trial)

    cdef int ended(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t replica = self._fleet.requests[row].replica, status, instance, slot
        if replica < 0:
            return 0
        if self._fleet.requests[row].status == COMPLETED:
            self._advance(now_ns)
            instance = self._instance_of(row, replica)
            slot = instance * self._fleet.num_replicas + replica
            self._successes[slot] += 1
            if self._on_trial[slot]:
                with gil:
                    self._succeeds(instance, replica)
            return 0
        status = self._http_status(row)
        if status > 0:
            with gil:
                self.fails(row, status, now_ns)
        return 0

    cdef int32_t _instance_of(self, int32_t row, int32_t replica) noexcept nogil:
        """Return the instance of the gateway of a replica that a request went to."""
        cdef void* assignment = self._assignments[replica]
        return 0 if assignment == NULL else (<Assignment>assignment).of(row)

    cdef int32_t _http_status(self, int32_t row) except -1 nogil:
        """Return the status of a server's answer to a request that has ended; 0: no failure of its replica."""
        cdef int8_t status = self._fleet.requests[row].status, cause = self._fleet.journeys[row].cause
        if status == TIMED_OUT:
            return HTTP_TIMEOUT
        if status == FAILED and cause == KV_LOAD_FAILED:
            return HTTP_LOST
        if status != REJECTED or cause != NO_CAUSE:
            return 0
        with gil:
            place = self._lifecycle.places[self._fleet.requests[row].replica]
            return HTTP_FULL if self._fleet.requests[row].prompt_tokens <= place.replica.scheduler.longest_prompt else 0

    def loses(self, int32_t row, now_ns):
        """Note that a request has been taken off a replica that failed."""
        if self._fleet.requests[row].replica >= 0:
            self.fails(row, HTTP_LOST, now_ns)

    def fails(self, int32_t row, int32_t status, now_ns):
        """Note the failure of a request, with a HTTP status, at its replica."""
        cdef int32_t replica = self._fleet.requests[row].replica, instance = self._instance_of(row, replica)
        ranks = self._lifecycle.places[replica].ranks
        slots = self._slots(instance, ranks)
        self._advance(now_ns)
        self._failures[instance * self._fleet.num_replicas + replica] += 1
        if self._cooldown is not None:
            successes = failures = 0
            for slot in slots:
                successes += self._successes[<int32_t>slot]
                failures += self._failures[<int32_t>slot]
            if self._cooldown.cools(status, successes, failures, self._count_replicas(ranks[0])):
                self._cool(instance, ranks, now_ns)
        if self._circuits is not None and self._circuits[slots[0]].fails(now_ns):
            self._set_trial(slots, False)
            self._bar(instance, ranks, BREAKER, now_ns)
            self._agenda.at(now_ns + self._open_ns, LIFECYCLE, partial(self._try_again, instance, ranks))

    def _slots(self, instance, ranks):
        return [instance * self._fleet.num_replicas + rank.index for rank in ranks]

    def _cool(self, instance, ranks, now_ns):
        first = self._slots(instance, ranks)[0]
        is_cooling = first in self._cools_until
        until_ns = self._cools_until[first] = now_ns + round(self._cooldown.seconds * 1e9)
        self._agenda.at(until_ns, LIFECYCLE, partial(self._warm, instance, ranks))
        if not is_cooling:
            self._bar(instance, ranks, COOLDOWN, now_ns)

    def _warm(self, instance, ranks, now_ns):
        first = self._slots(instance, ranks)[0]
        if now_ns >= self._cools_until.get(first, now_ns + 1):      # else a later failure has made it longer
            del self._cools_until[first]
            self._unbar(instance, ranks, now_ns)

    def _try_again(self, instance, ranks, now_ns):
        slots = self._slots(instance, ranks)
        self._circuits[slots[0]].try_again()
        self._set_trial(slots, True)
        self._unbar(instance, ranks, now_ns)

    def _succeeds(self, instance, int32_t replica):
        slots = self._slots(instance, self._lifecycle.places[replica].ranks)
        circuit = self._circuits[slots[0]]
        circuit.succeeds()
        if circuit.successes_left == 0:
            self._set_trial(slots, False)

    def _set_trial(self, slots, is_on_trial):
        for slot in slots:
            self._on_trial[<int32_t>slot] = is_on_trial

    def _bar(self, instance, ranks, cause, now_ns):
        self._change(instance, ranks, 1, cause, now_ns)

    def _unbar(self, instance, ranks, now_ns):
        self._change(instance, ranks, -1, UNBARRED, now_ns)

    def _change(self, instance, ranks, change, cause, now_ns):
        """Add to the reasons for which an instance, or the only one, sends a replica no requests."""
        is_only = self._assignments[<int32_t>ranks[0].index] == NULL
        for rank in ranks:
            if is_only:
                rank.num_barred += change
            else:
                routers_of(rank.gateway).bar(instance, rank.view_index, change, now_ns)
            self._lifecycle.note(rank, now_ns, cause)
        self._lifecycle.review(ranks, now_ns)
        if not is_only:
            ranks[0].gateway.change_limits(now_ns)

    def _count_replicas(self, place):
        """Return the number of replicas behind the gateway of a place that serve, failures aside."""
        return len({other.number for other in self._lifecycle.places
                    if other.gateway is place.gateway and other.serves})

    cdef void _advance(self, int64_t now_ns) noexcept nogil:
        if now_ns // MINUTE_NS != self._minute:
            self._minute = now_ns // MINUTE_NS
            memset(self._successes, 0, self._num_slots * sizeof(int64_t))
            memset(self._failures, 0, self._num_slots * sizeof(int64_t))
