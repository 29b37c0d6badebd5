"""Replicas that get no requests for a while after failures: cooldowns and circuit breakers.

A failure is a request that its client gave up at the replica, that the engine refused for a full queue, or that lost
its replica; a prompt that does not fit is none. All ranks of a replica are one.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.domain.journey cimport KV_LOAD_FAILED, NO_CAUSE
from simulator.domain.request cimport COMPLETED, FAILED, REJECTED, TIMED_OUT
from simulator.engine.fleet.events cimport LIFECYCLE
from simulator.engine.operations.lifecycle cimport BREAKER, COOLDOWN, UNBARRED

from functools import partial

from simulator.domain.guards import Circuit

cdef enum:
    HTTP_TIMEOUT = 408
    HTTP_LOST = 500
    HTTP_FULL = 503

cdef int64_t MINUTE_NS = 60000000000


@cython.final
cdef class Guards:
    """The cooldowns and breakers of a cluster.

    fleet, agenda, lifecycle : of the cluster.
    cooldown, breaker : domain.guards.Cooldown and Breaker; None: there is none.
    """

    def __cinit__(self, Fleet fleet, *_):
        self._successes = <int64_t*>calloc(fleet.num_replicas, sizeof(int64_t))
        self._failures = <int64_t*>calloc(fleet.num_replicas, sizeof(int64_t))
        self._on_trial = <int8_t*>calloc(fleet.num_replicas, sizeof(int8_t))
        if self._successes == NULL or self._failures == NULL or self._on_trial == NULL:
            raise MemoryError()

    def __init__(self, Fleet fleet, Agenda agenda, Lifecycle lifecycle, cooldown, breaker):
        self._fleet, self._agenda, self._lifecycle, self._cooldown = fleet, agenda, lifecycle, cooldown
        self._cools_until = {}
        if breaker is not None:
            self._circuits = [Circuit(breaker) for _ in range(fleet.num_replicas)]
            self._open_ns = round(breaker.open_s * 1e9)

    def __dealloc__(self):
        free(self._successes)
        free(self._failures)
        free(self._on_trial)

    cdef int ended(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t replica = self._fleet.requests[row].replica, status
        if replica < 0:
            return 0
        if self._fleet.requests[row].status == COMPLETED:
            self._advance(now_ns)
            self._successes[replica] += 1
            if self._on_trial[replica]:
                with gil:
                    self._succeeds(replica)
            return 0
        status = self._http_status(row)
        if status > 0:
            with gil:
                self.fails(replica, status, now_ns)
        return 0

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

    def loses(self, int32_t row, int64_t now_ns):
        """Note that a request has been taken off a replica that failed."""
        if self._fleet.requests[row].replica >= 0:
            self.fails(self._fleet.requests[row].replica, HTTP_LOST, now_ns)

    def fails(self, int32_t replica, int32_t status, int64_t now_ns):
        """Note a failure of a replica with a HTTP status."""
        ranks = self._lifecycle.places[replica].ranks
        self._advance(now_ns)
        self._failures[replica] += 1
        if self._cooldown is not None:
            successes = failures = 0
            for rank in ranks:
                successes += self._successes[<int32_t>rank.index]
                failures += self._failures[<int32_t>rank.index]
            if self._cooldown.cools(status, successes, failures, self._count_replicas(ranks[0])):
                self._cool(ranks, now_ns)
        if self._circuits is not None and self._circuits[ranks[0].index].fails(now_ns):
            self._set_trial(ranks, False)
            self._bar(ranks, BREAKER, now_ns)
            self._agenda.at(now_ns + self._open_ns, LIFECYCLE, partial(self._try_again, ranks))

    def _cool(self, ranks, now_ns):
        is_cooling = ranks[0] in self._cools_until
        until_ns = self._cools_until[ranks[0]] = now_ns + round(self._cooldown.seconds * 1e9)
        self._agenda.at(until_ns, LIFECYCLE, partial(self._warm, ranks))
        if not is_cooling:
            self._bar(ranks, COOLDOWN, now_ns)

    def _warm(self, ranks, now_ns):
        if now_ns >= self._cools_until.get(ranks[0], now_ns + 1):       # else a later failure has made it longer
            del self._cools_until[ranks[0]]
            self._unbar(ranks, now_ns)

    def _try_again(self, ranks, now_ns):
        self._circuits[ranks[0].index].try_again()
        self._set_trial(ranks, True)
        self._unbar(ranks, now_ns)

    def _succeeds(self, int32_t replica):
        ranks = self._lifecycle.places[replica].ranks
        circuit = self._circuits[ranks[0].index]
        circuit.succeeds()
        if circuit.successes_left == 0:
            self._set_trial(ranks, False)

    def _set_trial(self, ranks, is_on_trial):
        for rank in ranks:
            self._on_trial[<int32_t>rank.index] = is_on_trial

    def _bar(self, ranks, cause, now_ns):
        for rank in ranks:
            rank.num_barred += 1
            self._lifecycle.note(rank, now_ns, cause)
        self._lifecycle.review(ranks, now_ns)

    def _unbar(self, ranks, now_ns):
        for rank in ranks:
            rank.num_barred -= 1
            self._lifecycle.note(rank, now_ns, UNBARRED)
        self._lifecycle.review(ranks, now_ns)

    def _count_replicas(self, place):
        """Return the number of replicas behind the gateway of a place that serve, failures aside."""
        return len({other.number for other in self._lifecycle.places
                    if other.gateway is place.gateway and other.serves})

    cdef void _advance(self, int64_t now_ns) noexcept nogil:
        if now_ns // MINUTE_NS != self._minute:
            self._minute = now_ns // MINUTE_NS
            memset(self._successes, 0, self._fleet.num_replicas * sizeof(int64_t))
            memset(self._failures, 0, self._fleet.num_replicas * sizeof(int64_t))
