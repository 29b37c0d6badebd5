"""The life of the replicas of a cluster, whoever decides on it."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.trace_rows cimport LifecycleRow
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.replica.replica cimport Replica

import numpy as np

from simulator.domain import records


@cython.final
cdef class Place:
    """A place for a replica, and how it fares.

    replica : numbered in the cluster.
    gateway, seat : in front of it, and its number there.
    """

    def __init__(self, Replica replica, Gateway gateway, int32_t seat):
        self.replica, self.gateway, self.seat = replica, gateway, seat
        self.pool, self.node = gateway.view.accounts[seat].pool, gateway.view.accounts[seat].node
        self.unit = gateway.view.accounts[seat].unit
        self.stage = UP if gateway.view.accounts[seat].is_routable else OFF
        self.faults = []
        self.latency = replica.latency

    def stand_behind(self, Gateway gateway, int32_t seat):
        """Be shown by another gateway, too."""
        self.second, self.second_seat = gateway, seat

    @property
    def index(self):
        """Its number in the cluster."""
        return self.replica.index

    @property
    def in_flight(self):
        """Requests that were sent there and are not gone."""
        cdef int32_t count = self.gateway.view.accounts[self.seat].in_flight
        if self.second is not None:
            count += self.second.view.accounts[self.second_seat].in_flight
        return count

    @property
    def serves(self):
        """Whether it has requests, or may get some, as far as nothing has failed."""
        return self.stage in (UP, DRAINING)

    @property
    def stands_still(self):
        """Whether nothing happens there."""
        return self.outage is not None and not self.outage.is_over

    @property
    def is_open(self):
        """Whether it may get requests, as far as the gateway knows."""
        return self.stage == UP and not self.is_marked_down and self.num_slow == 0

    @property
    def is_starting(self):
        """Whether it will serve soon."""
        return self.stage in (PROVISIONING, LOADING, WARMING)

    @property
    def state(self):
        """What the results show of it."""
        kinds = {fault.kind for fault in self.faults} if self.stage != OFF else set()
        if "stop" in kinds:
            return DOWN
        if "link" in kinds:
            return CUT_OFF
        return SLOW if kinds and self.stage == UP else self.stage


@cython.final
cdef class Lifecycle:
    """Who is in which stage, and how it came to that.

    fleet : the replicas.
    gateways : list of Gateway, which show those that are up at time 0 as routable.
    """

    def __init__(self, Fleet fleet, gateways):
        cdef Gateway gateway
        cdef int32_t seat
        self._fleet = fleet
        self.places = [None] * fleet.num_replicas
        for gateway in gateways:
            for seat in range(gateway.view.num_replicas):
                index = gateway.view.accounts[seat].replica
                if self.places[index] is None:
                    self.places[index] = Place(fleet.replicas[index], gateway, seat)
                else:
                    (<Place>self.places[index]).stand_behind(gateway, seat)
        self._rows = []
        for place in self.places:
            self.note(place, 0, START)

    def note(self, Place place, now_ns, cause):
        """Write down the state of a replica."""
        self._rows.append((now_ns, place.index, place.state, cause))

    def review(self, Place place, int64_t now_ns):
        """Tell the gateway whether requests may go to a replica."""
        if place.is_open:
            place.gateway.open(place.seat, now_ns)
            if place.second is not None:
                place.second.open(place.second_seat, now_ns)
        else:
            place.gateway.close(place.seat, now_ns)
            if place.second is not None:
                place.second.close(place.second_seat, now_ns)

    def enter(self, Place place, now_ns, stage):
        """Let a replica enter a stage because the autoscaler wants it."""
        self.num_draining += (stage == DRAINING) - (place.stage == DRAINING)
        place.stage = stage
        self.note(place, now_ns, SCALING)
        self.review(place, now_ns)
        if stage == DRAINING:
            self.look_at(place.index, now_ns)

    cdef int look_at(self, int32_t replica, int64_t now_ns) except -1:
        cdef Place place = self.places[replica]
        if place.stage == DRAINING and place.in_flight == 0 and not (
                self._fleet.hand_over is not None and self._fleet.hand_over.leases.holds(replica)):
            self.enter(place, now_ns, OFF)
            place.replica.rank.kv.forget()
        return 0

    def table(self, clock_ns):
        """Return what happened up to `clock_ns`, structured array (rows,), `records.LIFECYCLE`."""
        cdef LifecycleRow[::1] rows
        cdef int64_t i
        table = np.zeros(len(self._rows), records.LIFECYCLE)
        rows = table
        for i, row in enumerate(self._rows):
            rows[i].time_ns, rows[i].replica, rows[i].state, rows[i].cause = row
        return table[table["time_ns"] <= clock_ns]
