"""Plans for moves of requests between replicas; mover.pyx carries them out."""
from libc.stdint cimport int32_t, int64_t, int8_t
cimport cython

from simulator.core.event_queue cimport Event
from simulator.domain.request cimport COMPLETED
from simulator.engine.fleet.events cimport MIGRATE, RESCHEDULE, TAKE_OFF
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.operations.base cimport Operation
from simulator.engine.operations.movables cimport freest_replica, list_movables
from simulator.engine.operations.mover cimport SENDING, Mover, Transit
from simulator.engine.replica.replica cimport Replica
from simulator.routing.rescheduling.base cimport Movable, Move, Rescheduler
from simulator.scheduling.base cimport Scheduler

import numpy as np

from simulator.errors import BadAnswer
from simulator.routing.base import RoutingContext
from simulator.signals.part_view import PartView


def _groups(view, regions):
    """Return the view of a gateway, or one of the replicas of each region."""
    if regions is None:
        return [view]
    found = [np.flatnonzero(regions == region).astype(np.int32) for region in np.unique(regions)]
    return [PartView(len(replicas), view, replicas) for replicas in found]


cdef int check_move(Rescheduler rescheduler, const Move* move) except -1:
    """Raise BadAnswer unless a planned move is from one replica of the view to another."""
    if not (0 <= move.source < rescheduler.num_replicas and 0 <= move.destination < rescheduler.num_replicas
            and move.source != move.destination):
        raise BadAnswer(rescheduler, "plan", f"moves from one of {rescheduler.num_replicas} replicas to another",
                        f"{move.source} to {move.destination}")
    return 0


@cython.final
cdef class Migration(Operation):
    """Reschedulers that are called periodically, and replicas that are emptied.

    fleet : the replicas.
    gateways : list of Gateway.
    plan : MovePlan.
    seed : of the experiment.
    regions : of each gateway, the region of each replica of its view, int32: each has a rescheduler, and requests move
        within one; None: there are no regions.
    """

    cdef readonly Mover mover
    cdef Fleet _fleet
    cdef list _replicas         # Replica
    cdef list _gateways        # Gateway
    cdef list _reschedulers     # [group] of replicas; empty: requests move only off replicas that are emptied
    cdef object _group_of       # int32 [replica] group, of a gateway, or of a region of it; -1: no gateway
    cdef object _plan           # MovePlan
    cdef set _emptied           # replicas to be emptied
    cdef int32_t _num_emptied
    cdef list _orders           # actions given to `at`

    def __init__(self, Fleet fleet, gateways, plan, seed, regions=None):
        cdef Gateway gateway
        self.kinds = (RESCHEDULE, MIGRATE, TAKE_OFF)
        self._fleet, self._gateways, self._plan = fleet, list(gateways), plan
        self._replicas = fleet.replicas
        self.mover = Mover(fleet, gateways, plan)
        self._emptied, self._orders = set(), []
        self._reschedulers, self._group_of = [], np.full(fleet.num_replicas, -1, np.int32)
        shared, num_groups = fleet.shared, 0
        for i, gateway in enumerate(self._gateways):
            for view in _groups(gateway.view, None if regions is None else regions[i]):
                self._group_of[view.account_array["replica"]] = num_groups
                num_groups += 1
                if plan.rescheduler is not None:
                    context = RoutingContext(view, shared.workload, shared.content, seed=seed)
                    self._reschedulers.append(plan.rescheduler(plan.parameters, context))
                    if view is not gateway.view:
                        view.pass_on_wants()
        fleet.mover = self

    cdef int start(self) except -1 nogil:
        with gil:
            for i, rescheduler in enumerate(self._reschedulers):
                self._fleet.push_tick(self._interval_ns(rescheduler), RESCHEDULE, i)
        return 0

    def _interval_ns(self, Rescheduler rescheduler):
        return rescheduler.interval_ns if self._plan.interval_ns is None else self._plan.interval_ns

    cdef int handle(self, const Event* event) except -1 nogil:
        cdef int64_t now_ns = event.time_ns, payload = event.payload
        cdef int kind = event.kind
        with gil:
            return self._handle(kind, payload, now_ns)

    cdef int _handle(self, int kind, int64_t payload, int64_t now_ns) except -1:
        if kind == RESCHEDULE:
            return self._reschedule(<int32_t>payload, now_ns)
        if payload < 0:
            self._orders[~payload](now_ns)
            return 0
        self.mover.handle(kind, payload, now_ns)
        self._go_on_emptying(now_ns)
        return 0

    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil:
        cdef int32_t index = self._fleet.requests[row].replica
        if index >= 0 and (<Replica>self._fleet.entries[index].replica).rank.scheduler.num_arrived() > 0:
            with gil:
                self._drop_arrived(row, index, now_ns)
        if self.mover.num_transits + self._num_emptied > 0:
            with gil:
                if row in self.mover.transits:
                    self.mover.abort(self.mover.transits[row], now_ns)
                self._go_on_emptying(now_ns)
        return 0

    cdef int _drop_arrived(self, int32_t row, int32_t index, int64_t now_ns) except -1:
        """Free the slot of a request that ended after its move, before it could run at its destination."""
        cdef Replica replica = <Replica>self._fleet.entries[index].replica
        if replica.rank.scheduler.arrived_slot(row) >= 0:
            replica.settle_run(now_ns)
            replica.rank.scheduler.drop_arrived(row)
            replica.rouse(now_ns)
            self._fleet.touched(index)
        return 0

    # ---- planning

    cdef int _reschedule(self, int32_t index, int64_t now_ns) except -1:
        """Carry out a new plan, unless moves of the last are still under way."""
        cdef Rescheduler rescheduler = self._reschedulers[index]
        cdef int32_t i
        if all(self._group_of[(<Transit>each).source] != index for each in self.mover.transits.values()):
            if isinstance(rescheduler.view, PartView):
                rescheduler.view.copy_accounts()
            rescheduler.plan(now_ns)
            for i in range(rescheduler.num_moves):
                check_move(rescheduler, &rescheduler.moves[i])
                self._carry_out(rescheduler, &rescheduler.moves[i], now_ns)
        return self._fleet.push_tick(now_ns + self._interval_ns(rescheduler), RESCHEDULE, index)

    cdef int _carry_out(self, Rescheduler rescheduler, const Move* move, int64_t now_ns) except -1:
        cdef int32_t source = rescheduler.view.accounts[move.source].replica, count, i
        cdef int32_t destination = rescheduler.view.accounts[move.destination].replica
        cdef Replica replica = self._replicas[source]
        cdef int32_t[:, ::1] chosen
        replica.settle_run(now_ns)
        self._fleet.touched(source)
        rows, slots = list_movables(replica, self.mover.transits)
        if not len(rows):
            return 0
        cdef const Movable[::1] requests = rows
        chosen = np.zeros((2, len(rows)), np.int32)
        count = rescheduler.select(move, &requests[0], <int32_t>len(rows), (
            <int64_t>replica.rank.kv.num_blocks * replica.rank.kv.block_size), &chosen[0, 0], &chosen[1, 0])
        if not 0 <= count <= len(rows):
            raise BadAnswer(rescheduler, "select", f"at most {len(rows)} requests", count)
        for i in range(count):
            if not 0 <= chosen[0, i] < len(rows):
                raise BadAnswer(rescheduler, "select", f"indices below {len(rows)}", chosen[0, i])
            self.mover.begin(requests[chosen[0, i]].row, slots[chosen[0, i]], source, destination, now_ns)
        return 0

    # ---- the face for tests and exploration

    def at(self, int64_t time_ns, action):
        """Call an action at an instant, with it; to be used before the run begins."""
        self._orders.append(action)
        self._fleet.events.push(time_ns, MIGRATE, MIGRATE, 0, -len(self._orders))

    def move(self, int32_t row, int32_t destination, int64_t now_ns):
        """Move a request to a replica if it may go."""
        cdef int32_t source = self._fleet.requests[row].replica
        cdef Replica replica
        if source < 0 or self._fleet.requests[row].status >= COMPLETED:
            return 0
        replica = self._replicas[source]
        self.mover.begin(row, replica.rank.scheduler.slot_of(row), source, destination, now_ns)
        return 0

    # ---- replicas that are emptied, or fail

    def evacuate_by_migration(self, int32_t replica, int64_t now_ns):
        """Move all requests off a replica, as limits and room elsewhere allow, until `leave_alone`."""
        self._emptied.add(replica)
        self._num_emptied = len(self._emptied)
        self._go_on_emptying(now_ns)

    def leave_alone(self, int32_t replica):
        """Begin no more moves to empty a replica."""
        self._emptied.discard(replica)
        self._num_emptied = len(self._emptied)

    def abandon(self, int32_t replica, int64_t now_ns):
        """Abort all moves from and to a replica that is about to lose its requests; they stay where they were."""
        cdef Scheduler scheduler = (<Replica>self._replicas[replica]).rank.scheduler
        cdef Transit transit
        cdef int32_t row
        for transit in list(self.mover.transits.values()):
            if transit.phase == SENDING and transit.destination == replica:
                self.mover.arrive(transit, now_ns)
            elif replica in (transit.source, transit.destination):
                self.mover.abort(transit, now_ns)
        while scheduler.num_arrived() > 0:              # no room in the running list: back to the queue
            row = scheduler.last_arrived()
            scheduler.drop_arrived(row)
            scheduler.waiting.push_front(row)

    def _go_on_emptying(self, int64_t now_ns):
        """Begin as many moves off replicas that are emptied as limits allow."""
        for index in sorted(self._emptied):
            (<Replica>self._replicas[index]).settle_run(now_ns)
            self._fleet.touched(index)
            rows, slots = list_movables(self._replicas[index], self.mover.transits)
            for row, slot in zip(rows["row"].tolist(), slots, strict=True):
                if self.mover.num_going(index) == self._plan.max_out:
                    break
                full = {each for each in range(self._fleet.num_replicas)
                        if self.mover.num_coming(each) == self._plan.max_in
                        or self._group_of[each] != self._group_of[index]}
                destination = freest_replica(self._fleet, index, self._emptied | full, now_ns)
                if destination >= 0 and self.mover.may_go(row, slot, index, destination):
                    self.mover.begin(row, slot, index, destination, now_ns)
