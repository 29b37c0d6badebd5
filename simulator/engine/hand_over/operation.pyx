"""Requests with prefill at one replica and decode at another.

A prefill replica computes the prompt of a request, as if one output token were requested, and keeps the blocks. When
the router is notified of that, the request itself goes to a decode replica. Its scheduler allocates blocks, and the
request waits there for its KV, outside the running list. The replica reads the missing KV, recomputes the last token
of the prompt, and goes on; the prefill replica frees the blocks when notified of the end of the read. Source: vLLM
0.32.0, NixlConnector in pull mode, vllm/distributed/kv_transfer/kv_connector/v1/nixl/. Other protocols differ in the
replica that gets a request first, in the allocation of room for it, and in the unit of transfer: plan.py explains
these choices, domain/protocols.py has them by protocol.
"""
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.arithmetic cimport round_half_up
from simulator.core.clock cimport NEVER_NS
from simulator.core.event_queue cimport Event
from simulator.domain.journey cimport (
    KV_LOAD_FAILED, LEG_COMPLETED, LEG_ENDED, LEG_HANDED_OVER, LEG_RETRIED, NO_CAUSE, NO_REPLICA, ROLE_DECODE,
    ROLE_PREFILL)
from simulator.domain.request cimport COMPLETED, DROPPED, WAITING
from simulator.domain.transfer cimport (
    ASKED, MOVED, MOVING, NOT_COME, NOT_SPLIT, PREFILLING, PROMPT_ONLY, READY, SHAKING_HANDS)
from simulator.engine.fleet.events cimport HAND_OVER, LEASE, TRANSFER
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.hand_over.leases cimport Lease
from simulator.engine.hand_over.promises cimport promise, redeem
from simulator.engine.hand_over.tier cimport AFTERWARDS, ASKED_FOR, RESERVED
from simulator.engine.replica.replica cimport Replica
from simulator.kv.base cimport blocks_for
from simulator.routing.ranks.base cimport RankRouter
from simulator.scheduling.base cimport Scheduler

from simulator.engine.hand_over.journeys import merged_journeys, with_prefill_times
from simulator.engine.hand_over.plan import GRANULARITIES, ORDERS, PLACES
from simulator.engine.output.executions import merged


cdef inline void forget(Transfer* it) noexcept nogil:
    """Reset the record of an earlier attempt."""
    it.prefill_done_ns = it.start_ns = it.end_ns = -1
    it.num_bytes = 0
    it.prefill_replica = it.decode_replica = it.decode_place = it.prefill_slot = it.decode_slot = it.lease = -1
    it.loaded_tokens = it.computed_tokens = it.sent_tokens = it.under_way = 0
    it.has_begun = it.has_met = it.is_tail = it.is_local = it.is_promised = False


@cython.final
cdef class HandOver(Operation):
    """All KV transfers of a cluster.

    fleet, gateways : arguments of all operations. plan : ClusterPlan, with a `split`. network : plan.Network.
    """

    def __init__(self, Fleet fleet, gateways, plan, network):
        cdef Transfer[::1] rows
        cdef Replica replica
        settings = plan.split.settings
        self.kinds, self.continues = (HAND_OVER, TRANSFER, LEASE), True
        self._fleet, self._gateways, self._pairings, self._watchers = fleet, list(gateways), [], []
        self._requests, self._num_clients = fleet.requests, <int32_t>fleet.num_clients
        self.transport = Transport(network, settings.contention, settings.base_ns, settings.resolution_ns)
        self._order, self._place = <Order><int>ORDERS.index(settings.order), <Place><int>PLACES.index(settings.place)
        self._granularity = <Granularity><int>GRANULARITIES.index(settings.granularity)
        self._pushes, self._sends_token = settings.pushes, settings.sends_token
        self._is_unawaited = settings.unawaited
        self._handshake_ns, self._hop_ns = settings.handshake_ns, settings.hop_ns
        self._notice_ns, self._takes_whole_prompt = settings.notice_ns, settings.takes_whole_prompt
        self._acquainted = set() if settings.handshake_ns > 0 else None
        self._has_leases = self._order == SOURCE_FIRST and self._place == ASKED_FOR and not self._pushes
        self.leases = Leases(fleet.num_replicas, settings.lease_ns, settings.heartbeat_ns, settings.extension_ns)
        self._awaited_ns = self._awaited_lease_ns = NEVER_NS
        self.table = fleet.shared.transfers
        rows = self.table
        self._transfers = &rows[0] if len(self.table) else NULL
        self._wire = Wire(len(plan.pools), settings.pairs)
        self._ends = <End*>calloc(fleet.num_replicas, sizeof(End))
        if self._ends == NULL:
            raise MemoryError()
        for replica, pool in zip(fleet.replicas, network.ends[:, 5].tolist(), strict=True):
            self._ends[replica.index].replica = <void*>replica
            self._ends[replica.index].scheduler = <void*>replica.scheduler
            self._ends[replica.index].pool = pool
            self._ends[replica.index].block_size = replica.rank.kv.block_size

    def __dealloc__(self):
        free(self._ends)

    def pair(self, Gateway first, Gateway second, pairing, decode_first):
        """Have the first gateway split requests, with decode legs at the second; `pairing` : Pairing, which decides."""
        cdef int32_t i, replica
        self._pairings.append(pairing)
        first.pair(second, pairing, decode_first)
        if decode_first and self._order == SOURCE_FIRST and self._place == ASKED_FOR:
            second.count_promised()
        for i in range(first.view.num_replicas):
            replica = first.view.accounts[i].replica
            self._ends[replica].first, self._ends[replica].second = <void*>first, <void*>second
            self._ends[replica].ranks = <void*>second.router if isinstance(second.router, RankRouter) else NULL

    # ---- split requests

    cdef int begin(self, int32_t row, int32_t decode_place, int32_t prefill_replica, bint is_all) except -1 nogil:
        cdef Transfer* it = &self._transfers[row]
        forget(it)
        it.stage, it.decode_place = PROMPT_ONLY if is_all else PREFILLING, decode_place
        it.prefill_replica = prefill_replica
        return 0

    cdef int send(self, int32_t row, int32_t prefill_place, int64_t now_ns) except -1 nogil:
        cdef Transfer* it = &self._transfers[row]
        cdef void* first = self._ends[it.prefill_replica].first
        cdef void* second = self._ends[it.prefill_replica].second
        if self._order == SOURCE_FIRST or it.stage == PROMPT_ONLY:
            promise(it, row, self._ends, now_ns)
            return (<Gateway>first).dispatch(row, prefill_place, ROLE_PREFILL, now_ns)
        if self._order == DESTINATION_FIRST:
            (<Gateway>first).announce(row, prefill_place, ROLE_PREFILL, now_ns)
        else:
            (<Gateway>first).dispatch(row, prefill_place, ROLE_PREFILL, now_ns)
        return (<Gateway>second).dispatch(row, it.decode_place, ROLE_DECODE, now_ns)

    cdef void keep_whole(self, int32_t row) noexcept nogil:
        forget(&self._transfers[row])
        self._transfers[row].stage = NOT_SPLIT
        self._transfers[row].is_local = True

    # ---- a prefill leg leaves its replica

    cdef int noticed(self, int32_t row, int64_t now_ns) except -1 nogil:
        if row < self._num_clients and self._transfers[row].stage == NOT_COME:
            return self._give_up(row, now_ns)
        if row < self._num_clients and self._transfers[row].stage == MOVED:     # its decode replica had all of it
            return self._let_go(row, now_ns, self._notice_ns)
        if row < self._num_clients:
            return self._greet(row, now_ns)
        if self._requests[row].status < COMPLETED:          # the leg begins, or a chunk of it is computed
            return self._move(row - self._num_clients, now_ns)
        return self._leg_left(row, now_ns)

    cdef int _leg_left(self, int32_t leg, int64_t now_ns) except -1 nogil:
        cdef int32_t row = leg - self._num_clients
        cdef Transfer* it = &self._transfers[row]
        cdef int8_t status = self._requests[leg].status
        cdef int8_t how = LEG_HANDED_OVER if status == COMPLETED else LEG_ENDED
        cdef int64_t delay_ns
        if it.stage == PROMPT_ONLY and status == COMPLETED:
            how = LEG_COMPLETED
        self._fleet.recorder.finished -= 1                  # no client's request has left
        if self._requests[leg].replica >= 0:
            (<Gateway>self._ends[self._requests[leg].replica].first).leg_left(leg, how, now_ns)
        if self._requests[row].status >= COMPLETED:         # the request has ended meanwhile
            return self._let_go(row, now_ns, 0)
        if status != COMPLETED and self._requests[row].replica >= 0:    # it is at the decode replica already
            return self._fleet.events.push(now_ns, HAND_OVER, HAND_OVER, 0, row)
        if it.stage == PROMPT_ONLY or status != COMPLETED:
            self._tell(it.prefill_replica, now_ns)
        if status != COMPLETED:                             # the leg was refused there, or lost
            return self._fleet.refuse(row, status, NO_CAUSE, now_ns)
        if it.stage == PROMPT_ONLY:
            return self._complete(row, now_ns)
        it.prefill_done_ns = now_ns
        if self._place == RESERVED:
            return self._reserve(row, now_ns)
        if self._place == AFTERWARDS:
            return self._carry(row, now_ns)
        it.stage = ASKED if it.decode_slot >= 0 else READY
        if self._has_leases:
            it.lease = self.leases.begin(row, it.prefill_replica, it.prefill_slot, now_ns)
            self._await_leases()
        if self._order != SOURCE_FIRST:
            return self._move(row, now_ns)
        delay_ns = self._hop_ns + (<Gateway>self._ends[it.prefill_replica].second).routing_ns
        if delay_ns > 0:
            return self._fleet.events.push(now_ns + delay_ns, HAND_OVER, HAND_OVER, 0, row)
        self.go_on(row, now_ns)
        return 0

    cdef int _complete(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Complete a request without output tokens after prefill; the sampled token is discarded."""
        self._fleet.gate.deliver(row, 1, now_ns)
        self._fleet.gate.leave(row, COMPLETED, now_ns)
        return 0

    cdef bint go_on(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef Transfer* it = &self._transfers[row]
        cdef int32_t place, replica
        cdef void* second
        if it.stage != READY:
            return False
        second = self._ends[it.prefill_replica].second
        if self._requests[row].status >= COMPLETED:         # its client gave up meanwhile
            return True
        redeem(it, row, self._ends, now_ns)
        place = self._place_now(row, now_ns)
        if place < 0:
            (<Gateway>second).turn_away(row, now_ns)
            return True
        replica = (<Gateway>second).view.accounts[place].replica
        if it.lease >= 0 and replica != it.prefill_replica:
            self.leases.at(it.lease).reader = replica
            if not (self._is_cut_off(replica) or self._is_cut_off(it.prefill_replica)):
                self.leases.renew(it.lease, now_ns)
        if replica == it.prefill_replica:
            it.is_local = True
            self._let_go(row, now_ns, 0)                    # else it might wait for the blocks that it holds itself
        (<Gateway>second).dispatch(row, place, ROLE_DECODE, now_ns)
        return True

    # ---- reads

    cdef int _greet(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Read the KV, after a handshake if the two replicas have not met."""
        cdef Transfer* it = &self._transfers[row]
        cdef int64_t delay_ns = self._notice_ns if self._pushes else 0
        cdef bint is_known = True
        it.decode_replica = self._requests[row].replica
        if not self._takes_whole_prompt:
            it.sent_tokens = self._requests[row + self._num_clients].prompt_tokens - it.loaded_tokens
        if self._has_leases and (it.lease < 0 or self._is_cut_off(it.prefill_replica)):
            self.started += 1
            it.start_ns = now_ns
            return self._fail(row, now_ns)
        if self._handshake_ns > 0:
            with gil:
                is_known = self._is_acquainted(it.prefill_replica, self._requests[row].replica)
        if not is_known:
            delay_ns += self._handshake_ns
        if delay_ns == 0:
            return self._meet(row, now_ns)
        if it.stage == ASKED:
            it.stage, it.start_ns = SHAKING_HANDS, now_ns + delay_ns if self._has_leases else -1
        return self._fleet.events.push(now_ns + delay_ns, TRANSFER, TRANSFER, 0, row)

    cdef bint _is_acquainted(self, int32_t one, int32_t other) except -1:
        known = (one, other) in self._acquainted
        self._acquainted.add((one, other))
        return known

    cdef int _meet(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef Transfer* it = &self._transfers[row]
        cdef int32_t leg = row + self._num_clients
        it.has_met = True
        if self._has_leases and it.lease < 0:               # the lease has run out meanwhile
            self.started += 1
            return self._fail(row, now_ns)
        if self._order == DESTINATION_FIRST and it.stage == PREFILLING and self._requests[leg].status == WAITING:
            self._fleet.send(leg, it.prefill_replica, now_ns)
        return self._move(row, now_ns)

    cdef int _move(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Send the part of a prompt that can be sent: tokens computed so far, or layers as they are computed."""
        cdef Transfer* it = &self._transfers[row]
        cdef int64_t ready = self._requests[row + self._num_clients].prompt_tokens
        cdef bint is_done = it.prefill_done_ns >= 0
        if not it.has_met or it.stage >= MOVING or (
                self._requests[row].status >= COMPLETED and it.stage != SHAKING_HANDS):
            return 0
        if self._granularity == CHUNK and not is_done:      # whole blocks, as long as more will follow
            ready = it.computed_tokens - it.computed_tokens % self._ends[it.decode_replica].block_size
        elif not is_done and not (self._granularity == LAYER and it.has_begun):
            return 0
        if is_done:
            it.stage = MOVING
        if it.is_tail:
            return self._send_tail(row, now_ns) if it.under_way == 0 else 0
        if self._granularity == LAYER and not is_done:
            it.is_tail = True
        if ready > it.sent_tokens or (is_done and it.loaded_tokens == 0):   # then the token alone
            return self._start(row, it.sent_tokens, ready, now_ns)
        return 0

    cdef int _start(self, int32_t row, int64_t first, int64_t behind, int64_t now_ns) except -1 nogil:
        """Send the text from token `first` to `behind`, in whole blocks."""
        cdef Transfer* it = &self._transfers[row]
        cdef int32_t block_size = self._ends[it.decode_replica].block_size
        cdef int32_t source = self._ends[it.prefill_replica].pool, destination = self._ends[it.decode_replica].pool
        cdef int64_t tokens = behind - first
        cdef double num_bytes
        it.sent_tokens = <int32_t>behind
        if not self._sends_token:
            tokens = <int64_t>(blocks_for(behind, block_size) - first // block_size) * block_size
        num_bytes = self._wire.of_tokens(source, destination, tokens)
        if it.prefill_done_ns >= 0 or self._granularity == LAYER:
            num_bytes += self._wire.of_request(source, destination)
        if (<Scheduler>self._ends[it.decode_replica].scheduler).kv.is_hybrid:
            num_bytes = self._wire.of_groups(
                source, destination, (<Scheduler>self._ends[it.decode_replica].scheduler).kv, it.decode_slot)
        if it.start_ns < 0:
            it.start_ns = now_ns
        it.num_bytes += round_half_up(num_bytes)
        it.carrier = self.transport.begin(row, it.prefill_replica, it.decode_replica, num_bytes, now_ns)
        if it.lease >= 0:
            self.leases.at(it.lease).carrier = it.carrier
        it.under_way += 1
        self.started += 1
        return self._await_transport()

    cdef int _send_tail(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Send the last layer, when all others have arrived and it is computed."""
        cdef Transfer* it = &self._transfers[row]
        cdef double frac = self._wire.last_layer(
            self._ends[it.prefill_replica].pool, self._ends[it.decode_replica].pool)
        it.is_tail, it.under_way = False, it.under_way + 1
        it.carrier = self.transport.go_on(row, it.prefill_replica, it.decode_replica, it.num_bytes * frac, now_ns)
        self.started += 1
        return self._await_transport()

    cdef int _piece_came(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef Transfer* it = &self._transfers[row]
        it.under_way -= 1
        if it.lease >= 0 and self.leases.at(it.lease).has_expired:
            return self._fail(row, now_ns)
        self.completed += 1
        if it.under_way > 0:
            return 0
        if self._requests[row].status < COMPLETED:
            if it.stage < MOVING:                           # the rest is still to be computed
                return 0
            if it.is_tail:
                return self._send_tail(row, now_ns)
        return self._come(row, now_ns)

    cdef int _come(self, int32_t row, int64_t now_ns) except -1 nogil:
        """All KV has arrived: both replicas notice when they next check."""
        cdef Transfer* it = &self._transfers[row]
        cdef End* end = &self._ends[it.decode_replica]
        it.end_ns = now_ns
        self.moved += 1
        self.num_bytes += it.num_bytes
        if self._place != ASKED_FOR:
            return self._deliver_kv(row, now_ns)
        (<Scheduler>end.scheduler).comes_at(it.decode_slot, now_ns + self._notice_ns * self._pushes)
        (<Replica>end.replica).expect(now_ns + self._notice_ns * self._pushes)
        self._fleet.touched(it.decode_replica)
        return self._let_go(row, now_ns, self._notice_ns * (not self._pushes))

    # ---- pushes to a decode replica

    cdef int32_t _place_now(self, int32_t row, int64_t now_ns) except -2 nogil:
        """Return the decode replica of a computed prompt, as numbered in the view; -1: none can take the request.

        A replica chosen beforehand is kept while it serves; if it has several ranks, its front end chooses one now.
        """
        cdef int32_t place = self._transfers[row].decode_place
        cdef const End* end = &self._ends[self._transfers[row].prefill_replica]
        if place < 0 or not (<Gateway>end.second).view.accounts[place].is_routable:
            return (<Gateway>end.second).choose(row, now_ns)
        return place if end.ranks == NULL else (<RankRouter>end.ranks).choose_rank(row, place, now_ns)

    cdef int32_t _decode_place(self, int32_t row, int64_t now_ns) except -2 nogil:
        """Return the decode replica, as numbered in the view; -1: none can take the request: it was turned away."""
        cdef Transfer* it = &self._transfers[row]
        cdef void* second = self._ends[it.prefill_replica].second
        it.decode_place = self._place_now(row, now_ns)
        if it.decode_place < 0:
            it.stage = MOVED
            self._fleet.refuse(row, DROPPED, NO_REPLICA, now_ns)
            return -1
        it.decode_replica = (<Gateway>second).view.accounts[it.decode_place].replica
        return it.decode_place

    cdef int _reserve(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Allocate blocks of a decode replica for a finished prefill, and send it; or drop the request."""
        cdef Transfer* it = &self._transfers[row]
        cdef int64_t prompt = self._requests[row].prompt_tokens
        cdef void* scheduler
        cdef int32_t slot
        if self._decode_place(row, now_ns) < 0:
            return 0
        scheduler = self._ends[it.decode_replica].scheduler
        (<Replica>self._ends[it.decode_replica].replica).settle_run(now_ns)
        slot = (<Scheduler>scheduler).reserve(row, prompt + 1, prompt)
        self._fleet.touched(it.decode_replica)
        if slot < 0:
            it.stage = MOVED
            return self._fleet.refuse(row, DROPPED, NO_CAUSE, now_ns)
        it.decode_slot, it.loaded_tokens = slot, <int32_t>(prompt - (<Scheduler>scheduler).sequence(slot).num_computed)
        it.sent_tokens = 0 if self._takes_whole_prompt else <int32_t>(prompt - it.loaded_tokens)
        it.stage = MOVING
        return self._start(row, it.sent_tokens, prompt, now_ns)

    cdef int _carry(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Send a finished prefill to a decode replica, which gets the request when the KV arrives."""
        cdef Transfer* it = &self._transfers[row]
        it.stage = MOVED
        if (<Replica>self._ends[it.prefill_replica].replica).rank.take_first(row, now_ns):
            return 0
        if self._decode_place(row, now_ns) < 0:
            return 0
        it.stage = MOVING
        self._start(row, 0, <int64_t>self._requests[row].prompt_tokens + self._sends_token, now_ns)
        return self._queue_unawaited(row, now_ns) if self._is_unawaited else 0

    cdef int _queue_unawaited(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Put a request into the queue of its decode replica, without waking the replica if it sleeps."""
        cdef Transfer* it = &self._transfers[row]
        cdef void* replica = self._ends[it.decode_replica].replica
        cdef int64_t wake_ns = (<Replica>replica).wake_ns
        cdef bint sleeps = (<Replica>replica).pipeline.num_in_flight == 0 and wake_ns > now_ns
        it.stage = MOVED                                    # for the replica, the KV is there
        (<Gateway>self._ends[it.prefill_replica].second).put(row, it.decode_place, ROLE_DECODE, now_ns)
        if sleeps:
            (<Replica>replica).wake_at(wake_ns)
            self._fleet.touched(it.decode_replica)
        return 0

    cdef int _deliver_kv(self, int32_t row, int64_t now_ns) except -1 nogil:
        """The KV of a request has arrived at a decode replica, which the request joins now."""
        cdef Transfer* it = &self._transfers[row]
        cdef void* second = self._ends[it.prefill_replica].second
        cdef void* replica = self._ends[it.decode_replica].replica
        it.stage = MOVED
        if self._is_unawaited:
            (<Replica>replica).rouse(now_ns)
            self._fleet.touched(it.decode_replica)
            return 0
        (<Replica>replica).settle_run(now_ns)
        if self._requests[row].status >= COMPLETED:
            return self._release(row, now_ns)
        if self._place == AFTERWARDS:
            return (<Gateway>second).dispatch(row, it.decode_place, ROLE_DECODE, now_ns)
        if (<Replica>replica).scheduler.ends_at_start:      # BLIS: the client sees the first token with the second
            self._requests[row].output_tokens = (<Replica>replica).rank.delivery.target(row) > 1
        elif (<Replica>replica).rank.take_first(row, now_ns):
            return self._release(row, now_ns)
        return (<Gateway>second).put(row, it.decode_place, ROLE_DECODE, now_ns)

    cdef int _release(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Free the blocks reserved for a request; their replica has no run beyond `now_ns`."""
        cdef Transfer* it = &self._transfers[row]
        if it.decode_slot >= 0:
            (<Scheduler>self._ends[it.decode_replica].scheduler).cancel(it.decode_slot)
            it.decode_slot = -1
            (<Replica>self._ends[it.decode_replica].replica).rouse(now_ns)
            self._fleet.touched(it.decode_replica)
        return 0

    cdef int _let_go(self, int32_t row, int64_t now_ns, int64_t notice_ns) except -1 nogil:
        """Release the blocks of a prefill leg, which will not be read; notify its replica after `notice_ns`."""
        cdef Transfer* it = &self._transfers[row]
        cdef Lease* lease
        it.stage = MOVED
        if it.lease < 0:                                    # the lease ran out; or never began, as the client had left
            self._free_slot(it.prefill_replica, it.prefill_slot, now_ns + notice_ns)
        else:
            lease = self.leases.at(it.lease)
            if self._is_cut_off(it.prefill_replica) or self._is_cut_off(lease.reader):
                lease.row = -1                              # the notification is lost
            else:
                self.leases.end(it.lease)
                self._free_slot(it.prefill_replica, it.prefill_slot, now_ns + notice_ns)
        it.prefill_slot = it.lease = -1
        return self._tell(it.prefill_replica, now_ns)

    cdef int _tell(self, int32_t replica, int64_t now_ns) except -1 nogil:
        return self._tell_watchers(replica, now_ns) if self._is_watched and replica >= 0 else 0

    cdef int _tell_watchers(self, int32_t replica, int64_t now_ns) except -1 nogil:
        with gil:                   # in a function of its own: a function with objects always takes the GIL
            for watcher in self._watchers:
                watcher(replica, now_ns)
        return 0

    cdef int _free_slot(self, int32_t source, int32_t slot, int64_t done_ns) except -1 nogil:
        cdef End* end = &self._ends[source]
        if slot >= 0:
            (<Scheduler>end.scheduler).is_read_at(slot, done_ns)
            (<Replica>end.replica).expect(done_ns)
            self._fleet.touched(source)
        return 0

    cdef int _await_transport(self) except -1 nogil:
        """Schedule an event for the next change of the transport."""
        cdef int64_t next_ns = self.transport.next_ns()
        if next_ns < self._awaited_ns:
            self._awaited_ns = next_ns
            return self._fleet.events.push(next_ns, TRANSFER, TRANSFER, 0, -1)
        return 0

    cdef int handle(self, const Event* event) except -1 nogil:
        cdef int64_t now_ns = event.time_ns
        cdef int32_t row = <int32_t>event.payload
        if event.kind == LEASE:
            return self._expire(now_ns)
        if event.kind == HAND_OVER and row >= self._num_clients:
            if self._requests[row].status >= COMPLETED:
                return 0
            return self._fleet.withdraw(row, self._requests[row - self._num_clients].status, now_ns)
        if event.kind == HAND_OVER and self._order != SOURCE_FIRST:
            if self._requests[row].status >= COMPLETED:
                return 0
            return self._fleet.withdraw(row, self._requests[row + self._num_clients].status, now_ns)
        if event.kind == HAND_OVER:
            self.go_on(row, now_ns)
            return 0
        if row >= 0:
            if self._has_leases and (self._transfers[row].stage != SHAKING_HANDS
                                     or self._transfers[row].start_ns != now_ns):
                return 0                                    # the transfer was cancelled
            return self._meet(row, now_ns) if not self._transfers[row].has_met else 0
        if now_ns != self._awaited_ns:                      # an event at an earlier time was scheduled since
            return 0
        self._awaited_ns = NEVER_NS
        row = self.transport.take(now_ns)
        while row >= 0:
            self._piece_came(row, now_ns)
            row = self.transport.take(now_ns)
        return self._await_transport()

    # ---- failures

    cdef int _await_leases(self) except -1 nogil:
        """Schedule an event for the end of the next lease."""
        cdef int64_t next_ns = self.leases.next_ns()
        if next_ns < self._awaited_lease_ns:
            self._awaited_lease_ns = next_ns
            return self._fleet.events.push(next_ns, LEASE, LEASE, 0, -1)
        return 0

    cdef int _expire(self, int64_t now_ns) except -1 nogil:
        """Free the blocks with leases that run out now; a read in progress fails when it ends."""
        cdef int32_t index
        cdef Lease* lease
        if now_ns != self._awaited_lease_ns:
            return 0
        self._awaited_lease_ns = NEVER_NS
        index = self.leases.take(now_ns)
        while index >= 0:
            lease = self.leases.at(index)
            self.expired += 1
            self._free_slot(lease.source, lease.slot, now_ns)
            self._tell(lease.source, now_ns)
            if lease.row >= 0:
                self._transfers[lease.row].prefill_slot = -1
            if lease.carrier < 0:
                if lease.row >= 0:
                    self._transfers[lease.row].lease = -1
                self.leases.end(index)
            index = self.leases.take(now_ns)
        return self._await_leases()

    cdef bint _is_cut_off(self, int32_t replica) noexcept nogil:
        return replica >= 0 and (<Replica>self._ends[replica].replica).is_halted

    cdef void _desert(self, int32_t row, int64_t now_ns) noexcept nogil:
        """Abandon the blocks of a request, which will not be read any more; their replica is not notified."""
        cdef Transfer* it = &self._transfers[row]
        if it.lease < 0:
            return
        if self.leases.at(it.lease).has_expired:
            self.leases.end(it.lease)
        else:
            self.leases.fall_silent(it.lease, now_ns)
            self.leases.at(it.lease).row = self.leases.at(it.lease).carrier = -1
        it.prefill_slot = it.lease = -1

    cdef int _fail(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Fail a read that has begun; the decode replica notices when it next checks."""
        self.failed += 1
        return self._break_off(row, False, now_ns)

    cdef int _break_off(self, int32_t row, bint by_reader, int64_t now_ns) except -1 nogil:
        cdef Transfer* it = &self._transfers[row]
        cdef int32_t replica = self._requests[row].replica
        self._desert(row, now_ns)
        it.stage, it.num_bytes, it.under_way = NOT_COME, 0, 0
        (<Scheduler>self._ends[replica].scheduler).comes_at(it.decode_slot, now_ns)
        (<Replica>self._ends[replica].replica).expect(now_ns)
        self._fleet.touched(replica)
        return self._await_leases()

    cdef int _give_up(self, int32_t row, int64_t now_ns) except -1 nogil:
        """End a request, as its KV has not arrived."""
        cdef int32_t replica = self._requests[row].replica
        self._fleet.journeys[row].cause = KV_LOAD_FAILED
        (<Replica>self._ends[replica].replica).withdraw(row, DROPPED, now_ns)
        self._fleet.touched(replica)
        return 0

    # ---- replicas that fail, or are removed

    def holds(self, int32_t replica):
        """See Operation: while it keeps KV under a lease."""
        return self.leases.holds(replica)

    def watch(self, watcher):
        """Call watcher(replica, now_ns) from now on when a replica has less to do for others."""
        self._watchers.append(watcher)
        self._is_watched = True

    def cut_off(self, int32_t replica, int64_t now_ns):
        """Cut a replica off: reads at it, and from it, fail, and it neither sends nor receives notifications."""
        cdef int32_t index, row
        cdef Lease* lease
        for index in range(self.leases.room):
            lease = self.leases.at(index)
            row = lease.row
            if not self.leases.is_on(index) or (lease.source != replica and lease.reader != replica):
                continue
            self.leases.fall_silent(index, now_ns)
            if row >= 0 and self._transfers[row].stage in (ASKED, SHAKING_HANDS, MOVING):
                if lease.carrier >= 0:
                    self.transport.stop(lease.carrier, now_ns)
                else:
                    self.started += 1
                    self._transfers[row].start_ns = -1
                self.cancelled += lease.reader == replica
                self.failed += lease.reader != replica
                self._break_off(row, True, now_ns)
        self._await_transport()
        self._await_leases()

    def loses_kv(self, int32_t replica):
        """Discard all KV of a replica that is cut off."""
        cdef int32_t index
        cdef Lease* lease
        for index in range(self.leases.room):
            lease = self.leases.at(index)
            if self.leases.is_on(index) and lease.source == replica:
                if lease.row >= 0:
                    self._transfers[lease.row].prefill_slot = self._transfers[lease.row].lease = -1
                self.leases.end(index)
        if self._acquainted is not None:
            self._acquainted = {pair for pair in self._acquainted if replica not in pair}

    def is_heard_again(self, int32_t replica, int64_t now_ns):
        """Reconnect a replica: it renews its leases, and leases on its blocks are renewed."""
        cdef int32_t index
        cdef Lease* lease
        for index in range(self.leases.room):
            lease = self.leases.at(index)
            if self.leases.is_on(index) and lease.row >= 0 and lease.reader >= 0 and (
                    replica in (lease.source, lease.reader)
                    and not self._is_cut_off(lease.source) and not self._is_cut_off(lease.reader)):
                self.leases.renew(index, now_ns)

    def taken_off(self, int32_t row, bint is_retried, int64_t now_ns):
        """Note that a request is off its replica, which has failed; return the row of its client.

        It will be sent again, or leaves. The account of a prefill leg is settled.
        """
        cdef int32_t client = row % self._num_clients
        cdef Gateway first
        self._desert(client, now_ns)
        self._await_leases()
        redeem(&self._transfers[client], client, self._ends, now_ns)
        if row != client:
            first = <Gateway>self._ends[self._requests[row].replica].first
            first.leg_left(row, LEG_RETRIED if is_retried else LEG_ENDED, now_ns)
            if is_retried:
                first.returned(client, now_ns)
            self._requests[row].status = DROPPED            # as far as its replica is concerned
        if is_retried:
            self._transfers[client].stage = NOT_SPLIT
        return client

    # ---- a request has left

    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil:
        cdef Transfer* it = &self._transfers[row]
        redeem(it, row, self._ends, now_ns)
        if self._requests[row].replica < 0 and it.stage != NOT_SPLIT:       # it was sent, and reached no decode replica
            (<Gateway>self._ends[it.prefill_replica].first).gone(row, now_ns)
        if self._place == RESERVED and it.stage == MOVED:   # it waits, or has its KV: nothing to release
            return self._release(row, now_ns)
        if self._order != SOURCE_FIRST and it.decode_slot >= 0 and it.under_way == 0 and it.stage < MOVING:
            (<Scheduler>self._ends[it.decode_replica].scheduler).comes_at(it.decode_slot, now_ns)
            (<Replica>self._ends[it.decode_replica].replica).expect(now_ns)
            self._fleet.touched(it.decode_replica)
            it.decode_slot = -1
            if it.stage != PREFILLING:
                return self._let_go(row, now_ns, self._notice_ns)
        if it.stage in (PREFILLING, PROMPT_ONLY) and self._requests[row + self._num_clients].status < COMPLETED:
            return self._fleet.withdraw(row + self._num_clients, self._requests[row].status, now_ns)
        if it.stage == READY:                               # before its KV was requested
            return self._let_go(row, now_ns, self._notice_ns)
        return 0

    # ---- results

    def report(self, run):
        """See Operation: the request table begins with the prefill leg of split requests."""
        table = self.table
        with_prefill_times(run.workload.requests, self._fleet.workload.requests[len(table):], table)
        run.transfers = table
        run.transfer_counts = {"count": self.moved, "bytes": self.num_bytes, "failed": self.failed,
                               "cancelled": self.cancelled, "expired": self.expired,
                               "local": int(table["is_local"].sum())} | self.transport.crowding()
        if run.journeys is not None:
            run.journeys = merged_journeys(run.journeys, len(table))
        run.executions = merged(run.executions, len(table))
        run.legs["request"] %= max(len(table), 1)

    def check(self):
        """Raise RuntimeError unless the transport agrees with the count of transfers."""
        self.transport.check()
        self.leases.check()
        if self.started != self.completed + self.failed + self.cancelled + self.transport.num_under_way:
            raise RuntimeError(f"{self.started} transfers began, {self.completed} came to their end, {self.failed} and "
                               f"{self.cancelled} did not and {self.transport.num_under_way} are under way")
