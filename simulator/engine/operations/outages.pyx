"""Failures of replicas, and the fate of their requests.

A replica that stops or loses its link does not act. Its requests, and those still sent there, stay until the gateway
detects the failure; then the replica is closed and they are retried, restarted or lost. If it recovers before that, a
replica that lost its link goes on unchanged, and one that had stopped drops its requests at that instant. A slow
replica serves on; if the failure says so, it is closed on detection, and its requests move to other replicas.
"""
from libc.stdlib cimport free
cimport cython

from simulator.domain.journey cimport LEG_RETRIED, LOST, Journey
from simulator.domain.request cimport DROPPED, WAITING
from simulator.engine.replica.delivery cimport VOID_TOKEN_NS
from simulator.engine.fleet.events cimport ENQUEUE, LIFECYCLE, OUTAGE, REPLICAS
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.operations.lifecycle cimport DETECTION, DRAINING, FAILURE, RECOVERY, REOPENING

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from simulator.core.random_streams import RandomStreams
from simulator.engine.operations.slowed import Slowed
from simulator.errors import InputErrors, KeyFault


@dataclass
class Source:
    """A failure with its random stream and the replicas that it may hit.

    failure : domain.failures.Failure.
    generator : random numbers of its own.
    groups : list of lists of Place; each occurrence hits one list.
    number : of the failure, in order.
    hit : list of Place, those of the last occurrence.
    occurrences : number of times that the failure has happened. in_vain : those that hit no replica.
    """

    failure: Any
    generator: Any
    groups: list
    number: int
    hit: list = field(default_factory=list)
    occurrences: int = 0
    in_vain: int = 0


@dataclass
class Outage:
    """A failure in effect at a replica; `failure` defines the fate of its requests."""

    since_ns: int
    failure: Any
    loses_kv: bool = False
    is_noticed: bool = False
    is_over: bool = False


@cython.final
cdef class Outages:
    """Failures of the replicas of a cluster.

    fleet, agenda, lifecycle : of the cluster.
    failures : of domain.failures.Failure.
    health : domain.failures.Health.
    pools : names of the pools, in the order in which replicas are numbered.
    seed : of the experiment.
    """

    def __init__(self, Fleet fleet, Agenda agenda, Lifecycle lifecycle, failures, health, pools, seed):
        self._waits = RandomStreams(seed).generator("retries")
        self._fleet, self._agenda, self._lifecycle, self._health = fleet, agenda, lifecycle, health
        self._slow, self._retried, self._pools, self._seed = {}, [], pools, seed
        self.waits = {}
        if fleet.legs is None or fleet.journeys == NULL:
            raise ValueError("failures need journeys and legs")
        self._sources = [source for number, failure in enumerate(failures)
                         for source in _sources(number, failure, lifecycle.places, pools, RandomStreams(seed))]

    def __dealloc__(self):
        free(self._rows.rows)

    def wait_before_retries(self, retry):
        """Have requests wait before they are sent elsewhere; retry : domain.guards.Retry."""
        self._retry = retry

    def start(self):
        """Await the first failures."""
        for source in self._sources:
            if source.failure.at_s is None:
                self._await_next(source, 0)
            else:
                self._agenda.tick(round(source.failure.at_s * 1e9), OUTAGE, partial(self._fail, source))

    def add(self, failure):
        """Let a further failure of one target happen, at its at_s, which is yet to come; return its Source."""
        number = len(self._sources)
        [source] = _sources(number, failure, self._lifecycle.places, self._pools, RandomStreams(self._seed))
        self._sources.append(source)
        self._agenda.tick(round(failure.at_s * 1e9), OUTAGE, partial(self._fail, source))
        return source

    def recover(self, source, at_ns):
        """End a failure without a duration at an instant to come."""
        self._agenda.at(at_ns, OUTAGE, lambda now_ns: self._repair(source, source.hit, now_ns))

    def _await_next(self, source, now_ns):
        if source.failure.mtbf_s is not None:
            delay_ns = source.failure.time_to_failure_ns(source.generator)
            self._agenda.tick(now_ns + delay_ns, OUTAGE, partial(self._fail, source))

    def _fail(self, source, now_ns):
        source.occurrences += 1
        if source.failure.kind == "cache":
            self._empty_caches(_hit(source))
            self._await_next(source, now_ns)
            return
        places = _with_fellows(_hit(source), source.failure)
        source.hit[:] = places
        source.in_vain += not places
        if source.failure.kind != "slow":
            self._read_last([place for place in places if not place.stands_still], now_ns)
        duration_ns = source.failure.duration_ns(source.generator)
        stopped = [(place, place.outage) for place in places if self._begin(place, source.failure, now_ns)]
        if stopped:
            noticed_ns = self._health.detected_ns(now_ns)
            self._agenda.at(noticed_ns, LIFECYCLE, partial(self._notice, stopped))
        if duration_ns is None or not places:
            self._await_next(source, now_ns)
        else:
            self._agenda.at(now_ns + duration_ns, OUTAGE, partial(self._repair, source, places))

    def _repair(self, source, places, now_ns):
        self._go_on([(place, place.outage) for place in places if self._end(place, source.failure, now_ns)], now_ns)
        self._await_next(source, now_ns)

    def _read_last(self, places, now_ns):
        """Let all views read replicas that are about to halt."""
        for place in places:
            for view in self._fleet._views:
                view.read_last(place.replica, now_ns)

    def _empty_caches(self, places):
        """Empty the prefix caches of replicas without requests, as vLLM does if no block is in use."""
        cdef Place place
        self._num_kept += not places
        for place in places:
            if is_idle(place.replica) and place.replica.rank.kv.caches:
                place.replica.rank.kv.forget()
                self._fleet.touched(place.replica.index)
            else:
                self._num_kept += 1

    def notes(self):
        """Return failures without an effect, for the diagnosis of a run."""
        found = [f"failures: {self._num_kept} times a prefix cache was not emptied: its replica had a request, did not "
                 "serve, or keeps none"] if self._num_kept else []
        by_number = {}
        for source in self._sources:
            by_number.setdefault(source.number, []).append(source)
        for number, sources in by_number.items():
            failure = sources[0].failure
            if not any(source.occurrences for source in sources):
                when = f"mtbf_s = {failure.mtbf_s:g}" if failure.at_s is None else f"at_s = {failure.at_s:g}"
                found.append(f"failures[{number}] with {when} did not happen before the end of the run")
            elif failure.at_s is not None and all(source.in_vain for source in sources):
                found.append(f"failures[{number}] with at_s = {failure.at_s:g} had no effect: no replica that it may "
                             "hit served then, or all had failed already")
        return found

    # ---- one replica

    def _begin(self, Place place, failure, int64_t now_ns):
        """Add a failure to a replica; return whether it stops acting now, and acted before."""
        stops = failure.kind != "slow" and not place.stands_still
        place.faults.append(failure)
        if failure.kind == "slow":
            self._set_pace(place, now_ns)
            if failure.on_failure == "migrate":
                outage = self._slow[place.index, id(failure)] = Outage(now_ns, failure)
                self._agenda.at(self._health.detected_ns(now_ns), LIFECYCLE,
                                partial(self._avoid, place, outage))
        elif stops:
            place.replica.halt(now_ns)
            self._fleet.touched(place.replica.index)
            for operation in self._fleet.operations:
                operation.cut_off(place.index, now_ns)
            place.outage = Outage(now_ns, failure)
        if failure.kind == "stop":
            place.outage.loses_kv, place.outage.failure = True, failure
            for operation in self._fleet.operations:
                operation.loses_kv(place.index)
        self._lifecycle.note(place, now_ns, FAILURE)
        return stops

    def _end(self, Place place, failure, now_ns):
        """Remove a failure from a replica; return whether it acts again."""
        place.faults.remove(failure)
        self._lifecycle.note(place, now_ns, RECOVERY)
        if failure.kind == "slow":
            self._set_pace(place, now_ns)
            if failure.on_failure == "migrate":
                self._well_again(place, self._slow.pop((place.index, id(failure))), now_ns)
        return failure.kind != "slow" and all(fault.kind == "slow" for fault in place.faults)

    # ---- replicas that fail together: [(Place, Outage)]

    def _go_on(self, back, now_ns):
        """Let replicas go on; if KV was lost in an undetected failure, first drop their requests."""
        cdef Place place
        for place, outage in back:
            outage.is_over = True
            if outage.loses_kv and not outage.is_noticed:
                self._take_off(place, outage, now_ns)
            if outage.loses_kv:
                place.replica.rank.forget()
                self._fleet.touched(place.replica.index)
        self._send_elsewhere(now_ns)
        for place, outage in back:
            self._wake(place, outage, now_ns)
        noticed = [(place, outage) for place, outage in back if place.is_marked_down]
        if noticed:
            open_ns = self._health.reopened_ns(now_ns)
            self._agenda.at(open_ns, LIFECYCLE, partial(self._reopen, noticed))

    def _wake(self, Place place, outage, int64_t now_ns):
        if not outage.is_noticed:
            scheduler = place.replica.rank.scheduler
            for row in scheduler.running_rows() + scheduler.held_rows() + scheduler.waiting.rows():
                self._count_downtime(row, outage.since_ns, now_ns)
        place.replica.resume(outage.since_ns, now_ns)
        for operation in self._fleet.operations:
            operation.is_heard_again(place.index, now_ns)
        self._fleet.touched(place.replica.index)

    def _notice(self, stopped, now_ns):
        cdef int64_t last_ns
        stopped = [(place, outage) for place, outage in stopped if not outage.is_over]
        for place, outage in stopped:
            outage.is_noticed = place.is_marked_down = True
            self._lifecycle.note(place, now_ns, DETECTION)
        self._lifecycle.review([place for place, _ in stopped], now_ns)
        for place, outage in stopped:
            self._fleet.empty_front_end(place.replica.index, now_ns)
            self._take_off(place, outage, now_ns)
        self._send_elsewhere(now_ns)
        for place, outage in stopped:
            last_ns = self._fleet.events.last_ns(ENQUEUE, place.index)          # of requests on the way there
            if last_ns >= 0:
                self._agenda.at(last_ns, OUTAGE, partial(self._sweep, place, outage), REPLICAS)

    def _sweep(self, place, outage, now_ns):
        if not outage.is_over:
            self._take_off(place, outage, now_ns)
            self._send_elsewhere(now_ns)

    def _reopen(self, back, now_ns):
        places = [place for place, outage in back if place.outage is outage]    # no other failure affected it meanwhile
        for place in places:
            place.is_marked_down = False
            self._lifecycle.note(place, now_ns, REOPENING)
        self._lifecycle.review(places, now_ns)

    # ---- a slow replica

    def _set_pace(self, Place place, int64_t now_ns):
        cdef double factor = place.pace()
        place.replica.set_latency(place.latency if factor == 1.0 else Slowed(place.latency, factor), now_ns)
        self._fleet.touched(place.replica.index)

    def _avoid(self, Place place, outage, now_ns):
        if not outage.is_over:
            outage.is_noticed = True
            place.num_slow += 1
            self._lifecycle.note(place, now_ns, DETECTION)
            self._lifecycle.review([place], now_ns)
            self._fleet.mover.evacuate_by_migration(place.index, now_ns)

    def _well_again(self, Place place, outage, now_ns):
        outage.is_over = True
        if outage.is_noticed:
            open_ns = self._health.reopened_ns(now_ns)
            self._agenda.at(open_ns, LIFECYCLE, partial(self._trust, place))

    def _trust(self, Place place, now_ns):
        place.num_slow -= 1
        if place.num_slow == 0:
            if place.stage != DRAINING:
                self._fleet.mover.leave_alone(place.index)
            self._lifecycle.note(place, now_ns, REOPENING)
            self._lifecycle.review([place], now_ns)

    # ---- a replica that is stopped on purpose

    def clear(self, places, failure, int64_t now_ns):
        """Stop replicas, which drain, and take their requests off; `failure` defines their fate."""
        cdef Place place
        cdef int64_t last_ns
        self._read_last(places, now_ns)
        for place in places:
            place.replica.halt(now_ns)
            place.outage = Outage(now_ns, failure, loses_kv=True, is_noticed=True)
            self._fleet.touched(place.replica.index)
        for place in places:
            outage = place.outage
            self._fleet.empty_front_end(place.replica.index, now_ns)
            last_ns = self._fleet.events.last_ns(ENQUEUE, place.index)
            self._take_off(place, outage, now_ns)
            if last_ns >= 0:
                self._agenda.at(last_ns, OUTAGE, partial(self._sweep, place, outage), REPLICAS)
        self._send_elsewhere(now_ns)

    def let_go_on(self, places, int64_t now_ns):
        """Let replicas that were stopped on purpose, and are empty, act again."""
        cdef Place place
        for place in places:
            if place.stands_still:
                place.outage.is_over = True
                place.replica.resume(place.outage.since_ns, now_ns)
                self._fleet.touched(place.replica.index)

    # ---- its requests

    cdef int _take_off(self, Place place, outage, int64_t now_ns) except -1:
        cdef int32_t most = 0 if outage.failure.on_failure == "lost" else outage.failure.max_retries
        cdef bint restarts = outage.failure.on_failure == "restart"
        cdef int32_t i, row, client
        cdef bint is_retried
        if self._retry is not None:
            most = min(most, self._retry.attempts)
        if self._fleet.mover is not None:
            self._fleet.mover.abandon(place.replica.index, now_ns)
        for operation in self._fleet.operations:    # its prefilled KV kept for decode replicas is lost
            operation.loses_kv(place.index)
        place.replica.evacuate(&self._rows)
        self._fleet.touched(place.replica.index)
        for i in range(self._rows.size):
            row = self._rows.rows[i]
            self._count_downtime(row, outage.since_ns, now_ns)
            client = row % <int32_t>self._fleet.num_clients
            is_retried = self._fleet.journeys[client].retries < most
            self._settle(place, row, is_retried, now_ns)
            if not is_retried:
                self._fleet.refuse(client, DROPPED, LOST, now_ns)
                continue
            self._fleet.journeys[client].retries += 1
            if restarts:
                self._void(client)
            self._retried.append((place.gateway, client))
        self._rows.size = 0
        return self._lifecycle.look_at(place.replica.index, now_ns)

    def _send_elsewhere(self, int64_t now_ns):
        cdef Gateway gateway
        cdef int32_t row
        retried, self._retried = self._retried, []
        for gateway, row in retried:
            if self._retry is None:
                gateway.return_to_gateway(row, now_ns)
                continue
            self._fleet.requests[row].status, self._fleet.requests[row].replica = WAITING, -1
            wait_ns = self._retry.delay_ns(self._fleet.journeys[row].retries - 1, self._waits.random())
            self._fleet.journeys[row].downtime_ns += wait_ns
            self.waits[row] = wait = object()
            self._agenda.at(now_ns + wait_ns, LIFECYCLE, partial(self._send_again, gateway, row, wait))

    def _send_again(self, Gateway gateway, int32_t row, wait, now_ns):
        if self.waits.get(row) is wait:         # else its client gave up meanwhile, and may have sent it again
            del self.waits[row]
            gateway.return_to_gateway(row, now_ns)

    cdef int _settle(self, Place place, int32_t row, bint is_retried, int64_t now_ns) except -1:
        cdef Gateway gateway = place.gateway
        if place.second is not None and self._fleet.gateway_of(row) == place.second.index:
            gateway = place.second
        for operation in self._fleet.operations:
            operation.taken_off(row, is_retried, now_ns)
        if is_retried and row < self._fleet.num_clients:
            self._fleet.legs.ended(row, LEG_RETRIED, now_ns)
            gateway.left(row, now_ns)
        return 0

    cdef void _void(self, int32_t row) noexcept nogil:
        """Discard the tokens that were streamed; the gaps between them stay recorded."""
        self._fleet.requests[row].output_tokens = 0
        self._fleet.requests[row].first_token_ns = -1
        self._fleet.gate.last_token_ns[row] = VOID_TOKEN_NS

    cdef void _count_downtime(self, int32_t row, int64_t since_ns, int64_t now_ns) noexcept nogil:
        cdef Journey* journey = &self._fleet.journeys[row]
        journey.downtime_ns += now_ns - max(since_ns, journey.dispatched_ns)


def is_idle(replica):
    """Return whether a replica has no request, and no block in use."""
    scheduler, kv = replica.rank.scheduler, replica.rank.kv
    return kv.free_blocks == kv.num_blocks and not (
        scheduler.running_rows() or scheduler.held_rows() or scheduler.waiting.rows())


def _hit(source):
    """Return the serving replicas that a failure hits, without those that already have it.

    Where it may hit several nodes, pools, ... it hits one with a replica that has not failed yet.
    """
    groups = [[place for place in group if place.serves and not any(fault is source.failure for fault in place.faults)]
              for group in source.groups]
    if len(groups) == 1:
        return groups[0]
    groups = [group for group in groups if not all(place.stands_still for place in group)]
    return groups[source.generator.integers(len(groups))] if groups else []


def _with_fellows(places, failure):
    """Return replicas, and the ranks that the failure affects along with them."""
    found = dict.fromkeys(fellow for place in places for fellow in place.fellows(failure.kind))
    return [place for place in found if place.serves and not any(fault is failure for fault in place.faults)]


def _key_of(place, target):
    return {"rank": place.index, "replica": place.number, "node": place.node, "unit": place.unit,
            "pool": place.pool}[target]


def _sources(number, failure, places, pools, streams):
    """Return the sources of a failure: one, or one for each node, replica, ... if it hits each on its own."""
    chosen = [place for place in places if failure.pool is None or failure.pool == pools[place.pool]]
    groups, streams_of, first_of = {}, {}, {}
    for place in chosen:
        key = _key_of(place, failure.target)
        groups.setdefault(key, []).append(place)
        first = first_of.setdefault(place.pool, key)
        # Of several pools by its number in its own, so that their order does not matter.
        streams_of[key] = key if len(pools) == 1 else f"{key - first} of {pools[place.pool]}"
    name = f"failure {number if failure.name is None else failure.name}"
    if failure.which == "each":
        return [Source(failure, streams.generator(f"{name} {failure.target} {streams_of[key]}"), [group], number)
                for key, group in groups.items()]
    if failure.which == "any":
        return [Source(failure, streams.generator(name), list(groups.values()), number)]
    if failure.which not in groups:
        raise InputErrors([KeyFault(f"failures[{number}].which: expected a {failure.target} {min(groups)} .. "
                                    f"{max(groups)}, found {failure.which}")])
    return [Source(failure, streams.generator(name), [groups[failure.which]], number)]
