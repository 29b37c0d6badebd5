"""Moves of requests from one replica to another.

`live`: all full KV blocks are copied while the request runs on, then those that were filled meanwhile, and so on; when
few are left, it is taken off its replica at the end of the iteration in progress, the rest is copied, and it joins the
running list of its destination. `blocking`: it is taken off first. `recompute`: it is taken off and goes without its
KV. A waiting request has no KV and goes at once. Blocks are reserved at the destination before they are copied, except
for those in its prefix cache; without room there, the request stays. Source: Llumnix (Sun et al., OSDI 2024, section
4.2); llumnix v0, llumnix/llumlet/migration_coordinator.py.
"""
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.domain.request cimport COMPLETED, PENDING
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.fleet.events cimport MIGRATE, TAKE_OFF
from simulator.engine.replica.replica cimport Replica
from simulator.kv.base cimport blocks_for
from simulator.scheduling.base cimport Scheduler, Sequence


@cython.final
cdef class Transit:
    """A request that moves."""


@cython.final
cdef class Mover:
    """All moves in a cluster.

    fleet : the replicas.
    gateways : list of Gateway; requests stay behind their gateway.
    plan : MovePlan.
    """

    def __init__(self, Fleet fleet, gateways, plan):
        cdef Gateway gateway
        self._fleet, self._gateways, self._plan = fleet, list(gateways), plan
        self._replicas = fleet.replicas
        self.transits, self._tickets, self._carried, self.watchers = {}, {}, {}, []
        self._link_end_ns = NEVER_NS
        self.counts = dict.fromkeys(("moved", "aborted", "refused"), 0)
        self._ports = [None] * fleet.num_replicas
        for gateway in self._gateways:
            places = {}
            for account in gateway.view.account_array:
                pool = int(account["pool"])
                port, place = plan.ports[pool], places.get(pool, 0)
                places[pool] = place + 1
                self._ports[account["replica"]] = (port, (pool, place // port.replicas_per_domain))
        ports = [port for port, _ in self._ports]       # link i: beyond the domain; num_replicas + i: within it
        self._links = Links([port.outer_bytes_per_s for port in ports] + [port.inner_bytes_per_s for port in ports])

    cdef int handle(self, int kind, int64_t payload, int64_t now_ns) except -1:
        cdef Transit transit
        if kind == MIGRATE and payload == self._link_ticket:
            return self._flows_over(now_ns)
        transit = self._tickets.pop(payload, None)
        if transit is None:                             # it was aborted
            return 0
        transit.ticket = 0
        if kind == TAKE_OFF:
            return self._end_iteration(transit.source, now_ns)
        return self._stage_over(transit, now_ns)

    def _flows_over(self, int64_t now_ns):
        """Continue moves after a flow has ended."""
        cdef Transit transit
        self._link_end_ns = NEVER_NS
        ended = [self._carried.pop(flow) for flow in self._links.take_ended(now_ns)]
        for transit in ended:
            transit.flow = None
        for transit in ended:
            if self._plan.latency_ns > 0:
                self._await(transit, MIGRATE, now_ns + self._plan.latency_ns)
            elif self.transits.get(transit.row) is transit:
                self._stage_over(transit, now_ns)
        self._await_links()
        return 0

    # ---- a move begins

    cdef bint begin(self, int32_t row, int32_t slot, int32_t source, int32_t destination, int64_t now_ns) except -1:
        cdef Replica replica = self._replicas[source]
        cdef Transit transit
        replica.settle_run(now_ns)
        self._fleet.touched(source)
        if not self.may_go(row, slot, source, destination) or (
                slot < 0 and replica.rank.scheduler.waiting.remove(row) != 0):
            self.counts["refused"] += 1
            return False
        transit = Transit()
        transit.row, transit.slot, transit.source, transit.destination = row, slot, source, destination
        transit.place, transit.stopped_ns, transit.began_ns = -1, -1, now_ns
        self.transits[row] = transit
        self.num_transits += 1
        if slot < 0:
            replica.rouse(now_ns)                      # it may have blocked the queue
            self._fleet.touched(source)
            self._send(transit, now_ns)
            return True
        transit.order = replica.rank.scheduler.sequence(slot).order
        if self._plan.mode == "recompute":
            self._await_end(transit, now_ns)
            return True
        self._next_stage(transit, now_ns)
        return transit.row in self.transits

    def may_go(self, int32_t row, int32_t slot, int32_t source, int32_t destination):
        """Return whether a request can move, as far as is known before blocks are reserved."""
        cdef Replica giver = self._replicas[source], taker = self._replicas[destination]
        if row in self.transits or source == destination or giver.is_halted or taker.is_halted:
            return False
        if slot >= 0 and giver.rank.scheduler.sequence(slot).is_member:      # its tokens are not counted one by one
            self._fleet.requests[row].output_tokens = giver.rank.scheduler.outputs(slot)
        if (taker.rank.scheduler.refusal(row) != PENDING
                or taker.rank.delivery.target(row) != giver.rank.delivery.target(row)):
            return False
        if slot < 0 and giver.rank.scheduler.stale_tokens(row) > 0:
            return False
        if slot >= 0 and self._plan.mode != "recompute" and (
                taker.rank.kv.block_size != giver.rank.kv.block_size
                or self._ports[source][0].block_bytes != self._ports[destination][0].block_bytes):
            return False
        return self.num_going(source) < self._plan.max_out and self.num_coming(destination) < self._plan.max_in

    def num_going(self, int32_t source):
        """Return how many requests are moving off a replica."""
        return sum((<Transit>each).source == source for each in self.transits.values())

    def num_coming(self, int32_t destination):
        """Return how many requests are moving to a replica."""
        return sum((<Transit>each).destination == destination for each in self.transits.values())

    # ---- it goes on

    cdef int _next_stage(self, Transit transit, int64_t now_ns) except -1:
        """Copy the blocks filled since the last stage, or take the request off if few are left."""
        cdef Replica replica = self._replicas[transit.source]
        cdef int32_t block_size = replica.rank.kv.block_size, rest
        cdef int64_t tokens
        replica.settle_run(now_ns)
        self._fleet.touched(transit.source)
        if not self._is_there(transit):
            return self.abort(transit, now_ns)
        tokens = replica.rank.settled_tokens(transit.slot)
        if not self._reserve(transit, tokens, now_ns):
            return self.abort(transit, now_ns)
        transit.stage += 1
        rest = blocks_for(tokens, block_size) - transit.blocks_copied
        if (self._plan.mode == "blocking" or transit.stage >= self._plan.max_stages
                or rest <= self._plan.last_stage_blocks):
            return self._await_end(transit, now_ns)
        transit.phase = COPYING
        transit.blocks_copying = <int32_t>(tokens // block_size)        # the last one is still being filled
        return self._copy(transit, transit.blocks_copying - transit.blocks_copied, now_ns)

    def _is_there(self, Transit transit):
        """Return whether the request still runs at its source, as when the move began."""
        cdef Replica replica = self._replicas[transit.source]
        cdef const Sequence* sequence = replica.rank.scheduler.sequence(transit.slot)
        return sequence.row == transit.row and sequence.order == transit.order

    def _reserve(self, Transit transit, int64_t tokens, int64_t now_ns):
        """Reserve blocks at the destination; return whether there was room."""
        cdef Replica replica = self._replicas[transit.destination]
        cdef Scheduler scheduler = replica.rank.scheduler
        cdef int64_t text = (<Replica>self._replicas[transit.source]).rank.scheduler.sequence(transit.slot).num_tokens
        text = max(text, tokens + 1)                    # num_tokens of a member is not kept up
        if replica.is_halted:
            return False
        replica.settle_run(now_ns)
        self._fleet.touched(transit.destination)
        if transit.place >= 0:
            return scheduler.extend(transit.place, text, tokens)
        transit.place = scheduler.reserve(transit.row, text, tokens)
        if transit.place >= 0:
            transit.blocks_copied = scheduler.sequence(transit.place).num_computed // replica.rank.kv.block_size
        return transit.place >= 0

    cdef int _copy(self, Transit transit, int32_t num_blocks, int64_t now_ns) except -1:
        cdef int32_t shift = 0
        source, destination = self._ports[transit.source], self._ports[transit.destination]
        if num_blocks <= 0:
            return self._await(transit, MIGRATE, now_ns + self._plan.latency_ns)
        if source[1] == destination[1] and source[0].inner_bytes_per_s > 0:
            shift = self._fleet.num_replicas
        transit.flow = self._links.start(transit.source + shift, transit.destination + shift,
                                         num_blocks * source[0].block_bytes, now_ns)
        self._carried[transit.flow] = transit
        return self._await_links()

    def _await(self, Transit transit, int kind, int64_t time_ns):
        """Let a transit wait for an event."""
        self._last_ticket += 1
        transit.ticket = self._last_ticket
        self._tickets[transit.ticket] = transit
        self._fleet.events.push(time_ns, kind, kind, 0, transit.ticket)
        return 0

    def _await_links(self):
        """Schedule an event for the end of the first flow."""
        cdef int64_t end_ns = self._links.next_end_ns()
        if end_ns != self._link_end_ns:
            self._last_ticket += 1
            self._link_ticket, self._link_end_ns = self._last_ticket, end_ns
            if end_ns < NEVER_NS:
                self._fleet.events.push(end_ns, MIGRATE, MIGRATE, 0, self._link_ticket)
        return 0

    cdef int _stage_over(self, Transit transit, int64_t now_ns) except -1:
        cdef Replica giver = self._replicas[transit.source], taker = self._replicas[transit.destination]
        if transit.phase == SENDING:
            return self.arrive(transit, now_ns)
        if giver.is_halted or taker.is_halted:
            return self.abort(transit, now_ns)
        if transit.phase == LAST_COPY:
            return self._hand_over(transit, now_ns)
        transit.blocks_copied = transit.blocks_copying
        return self._next_stage(transit, now_ns)

    # ---- it leaves its source

    cdef int _await_end(self, Transit transit, int64_t now_ns) except -1:
        """Wait for the end of the oldest iteration in flight."""
        cdef Replica replica = self._replicas[transit.source]
        if transit.phase != DRAINING:
            transit.phase = LEAVING
        replica.settle_run(now_ns)
        self._fleet.touched(transit.source)
        transit.due_ns = replica.next_end_ns(now_ns)
        if transit.due_ns == NEVER_NS:
            return self.abort(transit, now_ns)
        return self._await(transit, TAKE_OFF, transit.due_ns)

    cdef int _end_iteration(self, int32_t source, int64_t now_ns) except -1:
        """End an iteration of a replica, take leaving requests off, begin the next iteration."""
        cdef Replica replica = self._replicas[source]
        cdef Transit transit
        cdef bint is_due
        replica.settle_run(now_ns)              # since the move began, a run may have been planned
        is_due = replica.next_end_ns(now_ns) == now_ns
        waiting = [transit for transit in self.transits.values()
                   if transit.source == source and transit.phase in (LEAVING, DRAINING)]
        if is_due:
            replica.end_oldest()
            for transit in waiting:
                if transit.phase == LEAVING:
                    self._take_off(transit, now_ns)
                elif replica.rank.scheduler.stale_tokens(transit.row) == 0:
                    self._depart(transit, now_ns)
            replica.begin(now_ns, NEVER_NS)
            self._fleet.touched(source)
        for transit in waiting:
            if self.transits.get(transit.row) is transit and transit.phase in (LEAVING, DRAINING):
                self._tickets.pop(transit.ticket, None)
                self._await_end(transit, now_ns)
        return 0

    cdef int _take_off(self, Transit transit, int64_t now_ns) except -1:
        cdef Replica replica = self._replicas[transit.source]
        if not self._is_there(transit):
            return self.abort(transit, now_ns)
        if transit.place >= 0 and not self._reserve(transit, replica.rank.scheduler.computed(transit.slot), now_ns):
            return self.abort(transit, now_ns)
        replica.take_off(transit.slot)
        transit.stopped_ns = now_ns
        transit.phase = DRAINING
        if replica.rank.scheduler.stale_tokens(transit.row) == 0:
            self._depart(transit, now_ns)
        return 0

    cdef int _depart(self, Transit transit, int64_t now_ns) except -1:
        """Copy the rest of the KV, if the mode copies it."""
        cdef Replica replica = self._replicas[transit.source]
        cdef Scheduler scheduler = replica.rank.scheduler
        if self._fleet.requests[transit.row].status >= COMPLETED:       # with a token that was in flight
            return self.abort(transit, now_ns)
        self._tickets.pop(transit.ticket, None)
        scheduler.settle_parked(transit.slot)
        if transit.place < 0:
            scheduler.release_parked(transit.slot)
            return self._send(transit, now_ns)
        transit.phase = LAST_COPY
        return self._copy(transit, blocks_for(scheduler.sequence(transit.slot).num_computed, replica.rank.kv.block_size)
                          - transit.blocks_copied, now_ns)

    # ---- arrival at the destination

    cdef int _hand_over(self, Transit transit, int64_t now_ns) except -1:
        cdef Replica giver = self._replicas[transit.source], taker = self._replicas[transit.destination]
        cdef Sequence sequence = giver.rank.scheduler.sequence(transit.slot)[0]
        giver.settle_run(now_ns)
        giver.rank.scheduler.release_parked(transit.slot)
        giver.rouse(now_ns)
        self._fleet.touched(transit.source)
        self._move(transit, now_ns)
        taker.settle_run(now_ns)
        taker.rank.receive(transit.place, &sequence, now_ns)
        taker.rouse(now_ns)
        self._fleet.touched(transit.destination)
        self._forget(transit, "moved", now_ns)
        return 0

    cdef int _send(self, Transit transit, int64_t now_ns) except -1:
        """Send a request without KV to its destination's waiting queue."""
        self._move(transit, now_ns)
        if self._plan.latency_ns == 0:
            return self.arrive(transit, now_ns)
        transit.phase = SENDING
        return self._await(transit, MIGRATE, now_ns + self._plan.latency_ns)

    def arrive(self, Transit transit, int64_t now_ns):
        """Put a request that was sent without KV into its destination's waiting queue."""
        cdef Replica replica = self._replicas[transit.destination]
        replica.enqueue_again(transit.row, now_ns)
        self._fleet.touched(transit.destination)
        self._forget(transit, "moved", now_ns)
        return 0

    def _move(self, Transit transit, int64_t now_ns):
        """Move a request's account to its destination."""
        cdef Gateway gateway = self._gateways[self._fleet.entries[transit.source].gateway]
        gateway.moved(transit.row, transit.destination, transit.began_ns, now_ns)
        if self._fleet.journeys != NULL:
            self._fleet.journeys[transit.row].migrations += 1

    cdef int abort(self, Transit transit, int64_t now_ns) except -1:
        cdef Replica giver = self._replicas[transit.source], taker = self._replicas[transit.destination]
        cdef bint is_parked = transit.phase in (DRAINING, LAST_COPY)
        self._forget(transit, "aborted", now_ns)
        if transit.place >= 0:
            taker.settle_run(now_ns)
            taker.rank.scheduler.cancel(transit.place)
            taker.rouse(now_ns)
            self._fleet.touched(transit.destination)
        if is_parked:
            giver.settle_run(now_ns)
            if self._fleet.requests[transit.row].status >= COMPLETED:
                giver.rank.scheduler.release_parked(transit.slot)
            elif giver.rank.scheduler.stale_tokens(transit.row) > 0:    # tokens in flight return first
                giver.rank.scheduler.release_parked(transit.slot)
                giver.rank.scheduler.waiting.push_front(transit.row)
            else:
                giver.rank.scheduler.unpark(transit.slot)
            giver.rouse(now_ns)
            self._fleet.touched(transit.source)
        return 0

    def _forget(self, Transit transit, outcome, int64_t now_ns):
        """Remove a move from the lists."""
        self.counts[outcome] += 1
        del self.transits[transit.row]
        self.num_transits -= 1
        self._tickets.pop(transit.ticket, None)
        if transit.flow is not None:
            del self._carried[transit.flow]
            self._links.stop(transit.flow, now_ns)
            self._await_links()
        if transit.stopped_ns >= 0 and self._fleet.journeys != NULL:
            self._fleet.journeys[transit.row].downtime_ns += now_ns - transit.stopped_ns
        if outcome == "moved":
            for watch in self.watchers:
                watch(transit.source, now_ns)
