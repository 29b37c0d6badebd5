"""The lifecycle of the replicas of a cluster, under failures and autoscaling."""
cimport cython

from simulator.domain.trace_rows cimport LifecycleRow

import math

import numpy as np

from simulator.domain import records


@cython.final
cdef class Place:
    """A place for a replica, and its state.

    replica : numbered in the cluster.
    gateway, view_index : in front of it, and its number in the gateway's view.
    """

    def __init__(self, Replica replica, Gateway gateway, int32_t view_index):
        self.replica, self.gateway, self.view_index = replica, gateway, view_index
        self.pool, self.node = gateway.view.accounts[view_index].pool, gateway.view.accounts[view_index].node
        self.unit = gateway.view.accounts[view_index].unit
        self.stage = UP if gateway.view.accounts[view_index].is_routable else OFF
        self.faults = []
        self.latency = replica.latency

    def stand_behind(self, Gateway gateway, int32_t view_index):
        """Add a second gateway that shows the place."""
        self.second, self.second_view_index = gateway, view_index

    def join(self, int32_t number, ranks, in_step, behind_one_front):
        """Make the place a rank of a replica, see lifecycle.pxd."""
        self.number, self.ranks, self._in_step = number, ranks, in_step
        self._behind_one_front = behind_one_front

    @property
    def index(self):
        """Its number in the cluster."""
        return self.replica.index

    def fellows(self, kind):
        """Return the ranks that a failure of this kind affects along with this one, itself among them.

        A lost link halts all ranks in lock step: they meet in each layer of experts. A stopped process ends all ranks
        driven by its front end, or all in lock step. A slow rank affects only itself.
        Source: vLLM 0.32.0, vllm/v1/engine/core_client.py, MPClient.start_engine_core_monitor.
        """
        if kind == "slow":
            return [self]
        return self._in_step if kind == "link" else self._behind_one_front

    def pace(self):
        """Return the factor on the duration of its iterations: in lock step that of the slowest rank."""
        return max(math.prod(fault.slow_factor for fault in place.faults if fault.kind == "slow")
                   for place in self._in_step)

    @property
    def in_flight(self):
        """Number of requests that were sent there and have not left."""
        cdef int32_t count = self.gateway.num_at(self.view_index)
        if self.second is not None:
            count += self.second.num_at(self.second_view_index)
        return count

    @property
    def serves(self):
        """Whether it has requests, or may get some, failures aside."""
        return self.stage in (UP, DRAINING)

    @property
    def stands_still(self):
        """Whether it does not act."""
        return self.outage is not None and not self.outage.is_over

    @property
    def is_open(self):
        """Whether it may get requests, as far as the gateway knows."""
        return self.stage == UP and not self.is_marked_down and self.num_slow == 0 and self.num_barred == 0

    @property
    def is_starting(self):
        """Whether it is starting, and will serve."""
        return self.stage in (PROVISIONING, LOADING, WARMING)

    @property
    def state(self):
        """Its ReplicaStage as results show it."""
        kinds = {fault.kind for fault in self.faults} if self.stage != OFF else set()
        if "stop" in kinds:
            return DOWN
        if "link" in kinds:
            return CUT_OFF
        return SLOW if kinds and self.stage == UP else self.stage


@cython.final
cdef class Lifecycle:
    """The stage of each replica, and its history.

    fleet : the replicas.
    gateways : list of Gateway, which show replicas that are up at time 0 as routable.
    pools : of engine.plan.Pool, in the order in which replicas are numbered.
    """

    def __init__(self, Fleet fleet, gateways, pools):
        cdef Gateway gateway
        cdef int32_t view_index
        self._fleet = fleet
        self.places = [None] * fleet.num_replicas
        for gateway in gateways:
            for view_index in range(gateway.view.num_replicas):
                index = gateway.view.accounts[view_index].replica
                if self.places[index] is None:
                    self.places[index] = Place(fleet.replicas[index], gateway, view_index)
                else:
                    (<Place>self.places[index]).stand_behind(gateway, view_index)
        self._join(pools)
        self._rows, self._drained = [], {}
        for place in self.places:
            self.note(place, 0, START)

    def _join(self, pools):
        """Inform each place of the other ranks of its replica."""
        first = number = 0
        for pool in pools:
            front = pool.ranks if pool.is_in_lock_step else pool.ranks_per_choice
            for begin in range(first, first + pool.places, pool.ranks):
                ranks = self.places[begin:begin + pool.ranks]
                for rank, place in enumerate(ranks):
                    place.join(number, ranks, ranks if pool.is_in_lock_step else [place],
                               ranks[rank // front * front:(rank // front + 1) * front])
                number += 1
            first += pool.places

    def note(self, Place place, now_ns, cause):
        """Record the state of a replica."""
        self._rows.append((now_ns, place.index, place.state, cause))

    def review(self, places, int64_t now_ns):
        """Open or close these places at their gateways; then let waiting requests go there."""
        cdef Place place
        cdef Gateway gateway
        opened = []
        for place in places:
            for gateway, view_index in ((place.gateway, place.view_index), (place.second, place.second_view_index)):
                if gateway is None:
                    continue
                if not place.is_open:
                    gateway.close(view_index, now_ns)
                elif gateway.open(view_index, now_ns) and gateway not in opened:
                    opened.append(gateway)
        for gateway in opened:
            gateway.settle(now_ns)

    def when_drained(self, Place place, action):
        """Call `action(now_ns)` in place of turning a drained replica off; its caches are empty by then."""
        self._drained[place.ranks[0].index] = action

    def awaits(self, Place place, action):
        """Return whether an action given to `when_drained` has not been called."""
        return self._drained.get(place.ranks[0].index) is action

    def enter(self, Place place, now_ns, stage, cause=SCALING):
        """Move a replica, all its ranks, to a stage that the autoscaler, or another cause, decided on."""
        cdef Place rank
        self.num_draining += (stage == DRAINING) - (place.stage == DRAINING)
        if stage == UP and (place.is_starting or place.stage == OFF):   # blocks that others read were cached since
            for rank in place.ranks:
                rank.replica.rank.forget()
                self._fleet.touched(rank.index)
        for rank in place.ranks:
            rank.stage = stage
            self.note(rank, now_ns, cause)
        self.review(place.ranks, now_ns)
        if stage == DRAINING:
            self.look_at(place.index, now_ns)

    cdef int look_at(self, int32_t replica, int64_t now_ns) except -1:
        cdef Place place = self.places[replica], rank
        if place.stage != DRAINING:
            return 0
        for rank in place.ranks:
            if rank.in_flight > 0 or any([each.holds(rank.replica.index) for each in self._fleet.operations]):
                return 0
        action = self._drained.pop(place.ranks[0].index, None)
        if action is None:
            self.enter(place, now_ns, OFF)
        for rank in place.ranks:
            rank.replica.rank.forget()
            self._fleet.touched(rank.index)
        if action is not None:
            action(now_ns)
        return 0

    def table(self, clock_ns):
        """Return the rows up to `clock_ns`, structured array (rows,), `records.LIFECYCLE`."""
        cdef LifecycleRow[::1] rows
        cdef int64_t i
        table = np.zeros(len(self._rows), records.LIFECYCLE)
        rows = table
        for i, row in enumerate(self._rows):
            rows[i].time_ns, rows[i].replica, rows[i].state, rows[i].cause = row
        return table[table["time_ns"] <= clock_ns]
