"""Requests whose prompt one replica computes, and the rest another.

A prefill replica computes the prompt of a request, as if one token were asked for, and keeps the blocks. When that is
known to the router the request itself goes to a decode replica. Its scheduler gives it blocks, and it waits there for
its KV without taking a place among those that run. The replica reads what it has not, recomputes the last token of the
prompt, and goes on; the prefill replica frees the blocks when it hears that they have been read. Source: vLLM 0.32.0,
NixlConnector in pull mode, vllm/distributed/kv_transfer/kv_connector/v1/nixl/.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.arithmetic cimport round_half_up
from simulator.core.clock cimport NEVER_NS
from simulator.core.event_queue cimport Event
from simulator.domain.journey cimport LEG_COMPLETED, LEG_ENDED, LEG_HANDED_OVER, NO_CAUSE, ROLE_DECODE
from simulator.domain.request cimport COMPLETED
from simulator.domain.transfer cimport (
    MOVED, MOVING, NOT_SPLIT, PREFILLING, PROMPT_ONLY, READY, SHAKING_HANDS, Transfer)
from simulator.engine.fleet.events cimport HAND_OVER, TRANSFER
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.hand_over.transport cimport Transport
from simulator.engine.operations.base cimport Operation
from simulator.engine.replica.replica cimport Replica
from simulator.kv.base cimport blocks_for
from simulator.scheduling.base cimport Scheduler

import numpy as np


@cython.final
cdef class HandOver(Operation):
    """The hand-overs of a cluster.

    fleet, gateways : as operations are made with. plan : ClusterPlan, with a `hand_over`. network : plan.Network.
    """

    def __init__(self, Fleet fleet, gateways, plan, network):
        cdef Transfer[::1] rows
        cdef Replica replica
        settings = plan.hand_over
        self.kinds, self.hands_over = (HAND_OVER, TRANSFER), True
        self._fleet, self._gateways, self._pairings = fleet, list(gateways), []
        self._requests, self._num_clients = fleet.requests, <int32_t>fleet.num_clients
        self.transport = Transport(network, settings.contention, settings.base_ns)
        self._handshake_ns, self._hop_ns = settings.handshake_ns, settings.hop_ns
        self._notice_ns, self._takes_whole_prompt = settings.notice_ns, settings.takes_whole_prompt
        self._acquainted = set() if settings.handshake_ns > 0 else None
        self._awaited_ns = NEVER_NS
        self.table = fleet.shared.transfers
        rows = self.table
        self._transfers = &rows[0] if len(self.table) else NULL
        token_bytes, request_bytes = np.zeros((2, len(plan.pools), len(plan.pools)))
        for pools, pair in settings.pairs.items():
            token_bytes[pools], request_bytes[pools] = pair.token_bytes, pair.request_bytes
        self._token_bytes, self._request_bytes = token_bytes, request_bytes
        block_bytes = np.zeros((len(plan.pools), len(plan.pools),
                                max((len(pair.block_bytes) for pair in settings.pairs.values()), default=0)))
        for pools, pair in settings.pairs.items():
            block_bytes[pools][:len(pair.block_bytes)] = pair.block_bytes
        self._block_bytes = block_bytes
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
        """Have a gateway hand over to another what it has split; `pairing` : Pairing, which decides."""
        cdef int32_t i, replica
        self._pairings.append(pairing)
        first.pair(second, pairing, decode_first)
        for i in range(first.view.num_replicas):
            replica = first.view.accounts[i].replica
            self._ends[replica].first, self._ends[replica].second = <void*>first, <void*>second

    # ---- a request is split, or is not

    cdef int begin(self, int32_t row, int32_t decode_place, int32_t prefill_replica, bint is_all) except -1 nogil:
        cdef Transfer* it = &self._transfers[row]
        it.stage, it.decode_place = PROMPT_ONLY if is_all else PREFILLING, decode_place
        it.prefill_replica = prefill_replica
        it.prefill_slot = it.decode_slot = -1
        it.loaded_tokens = 0
        return 0

    cdef void keep_whole(self, int32_t row) noexcept nogil:
        self._transfers[row].stage = NOT_SPLIT
        self.local += 1

    # ---- a prefill leg leaves its replica

    cdef int noticed(self, int32_t row, int64_t now_ns) except -1 nogil:
        return self._leg_left(row, now_ns) if row >= self._num_clients else self._greet(row, now_ns)

    cdef int _leg_left(self, int32_t leg, int64_t now_ns) except -1 nogil:
        cdef int32_t row = leg - self._num_clients
        cdef Transfer* it = &self._transfers[row]
        cdef int8_t status = self._requests[leg].status
        cdef int8_t how = LEG_HANDED_OVER if status == COMPLETED else LEG_ENDED
        cdef int64_t delay_ns
        if it.stage == PROMPT_ONLY and status == COMPLETED:
            how = LEG_COMPLETED
        self._fleet.recorder.finished -= 1                  # no client has left
        if self._requests[leg].replica >= 0:
            (<Gateway>self._ends[self._requests[leg].replica].first).leg_left(leg, how, now_ns)
        if self._requests[row].status >= COMPLETED:         # nobody waits for it any more
            return self._let_go(row, now_ns)
        if status != COMPLETED:                             # it was refused there, or lost
            return self._fleet.refuse(row, status, NO_CAUSE, now_ns)
        if it.stage == PROMPT_ONLY:
            return self._complete(row, now_ns)
        it.prefill_done_ns, it.stage = now_ns, READY
        delay_ns = self._hop_ns + (<Gateway>self._ends[it.prefill_replica].second).routing_ns
        if delay_ns > 0:
            return self._fleet.events.push(now_ns + delay_ns, HAND_OVER, HAND_OVER, 0, row)
        self.go_on(row, now_ns)
        return 0

    cdef int _complete(self, int32_t row, int64_t now_ns) except -1 nogil:
        """The prompt was all there was to do of a request: it is complete, with the token that nobody keeps."""
        self._fleet.gate.deliver(row, 1, now_ns)
        self._fleet.gate.leave(row, COMPLETED, now_ns)
        return 0

    cdef bint go_on(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef Transfer* it = &self._transfers[row]
        cdef int32_t place = it.decode_place
        cdef void* second
        if it.stage != READY:
            return False
        second = self._ends[it.prefill_replica].second
        if self._requests[row].status >= COMPLETED:         # its client gave up meanwhile
            return True
        if place < 0 or not (<Gateway>second).view.accounts[place].is_routable:
            place = (<Gateway>second).choose(row, now_ns)
        if place < 0:
            (<Gateway>second).turn_away(row, now_ns)
            return True
        if (<Gateway>second).view.accounts[place].replica == it.prefill_replica:
            self._let_go(row, now_ns)                       # else it would wait for blocks that it keeps itself
        (<Gateway>second).dispatch(row, place, ROLE_DECODE, now_ns)
        return True

    # ---- its KV is read

    cdef int _greet(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Read, once the two replicas know each other."""
        cdef Transfer* it = &self._transfers[row]
        cdef bint is_known = True
        if self._handshake_ns > 0:
            with gil:
                is_known = self._is_acquainted(it.prefill_replica, self._requests[row].replica)
        if is_known:
            return self._start(row, now_ns)
        it.stage = SHAKING_HANDS
        return self._fleet.events.push(now_ns + self._handshake_ns, TRANSFER, TRANSFER, 0, row)

    cdef bint _is_acquainted(self, int32_t one, int32_t other) except -1:
        known = (one, other) in self._acquainted
        self._acquainted.add((one, other))
        return known

    cdef int _start(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef Transfer* it = &self._transfers[row]
        cdef int32_t replica = self._requests[row].replica, block_size = self._ends[replica].block_size
        cdef int32_t source = self._ends[it.prefill_replica].pool, destination = self._ends[replica].pool
        cdef int64_t tokens = it.loaded_tokens
        cdef double num_bytes
        if self._takes_whole_prompt:
            tokens = <int64_t>self._requests[row].prompt_tokens + self._requests[row].output_tokens
        tokens = <int64_t>blocks_for(tokens, block_size) * block_size
        num_bytes = tokens * self._token_bytes[source, destination] + self._request_bytes[source, destination]
        if (<Scheduler>self._ends[replica].scheduler).kv.is_hybrid:
            num_bytes = self._group_bytes(it.decode_slot, replica, source, destination)
        it.stage, it.start_ns, it.num_bytes, it.decode_replica = MOVING, now_ns, round_half_up(num_bytes), replica
        it.carrier = self.transport.begin(row, it.prefill_replica, replica, num_bytes, now_ns)
        self.started += 1
        return self._await_transport()

    cdef double _group_bytes(self, int32_t slot, int32_t replica, int32_t source, int32_t destination) noexcept nogil:
        """Return what is read into the blocks of groups of layers."""
        cdef double num_bytes = 0.0
        cdef int32_t group
        for group in range(<int32_t>self._block_bytes.shape[2]):
            if self._block_bytes[source, destination, group] > 0:
                num_bytes += self._block_bytes[source, destination, group] * (
                    <Scheduler>self._ends[replica].scheduler).kv.arriving_blocks(slot, group)
        return num_bytes

    cdef int _come(self, int32_t row, int64_t now_ns) except -1 nogil:
        """All has come: both replicas take notice when they look."""
        cdef Transfer* it = &self._transfers[row]
        cdef int32_t replica = self._requests[row].replica
        cdef End* end = &self._ends[replica]
        it.end_ns = now_ns
        self.completed += 1
        self.num_bytes += it.num_bytes
        (<Scheduler>end.scheduler).comes_at(it.decode_slot, now_ns)
        (<Replica>end.replica).expect(now_ns)
        self._fleet.touched(replica)
        return self._let_go(row, now_ns + self._notice_ns)

    cdef int _let_go(self, int32_t row, int64_t done_ns) except -1 nogil:
        """Nobody reads the blocks of a prefill leg any more, which its replica may know from then on."""
        cdef Transfer* it = &self._transfers[row]
        cdef End* end = &self._ends[it.prefill_replica]
        it.stage = MOVED
        if it.prefill_slot >= 0:
            (<Scheduler>end.scheduler).is_read_at(it.prefill_slot, done_ns)
            (<Replica>end.replica).expect(done_ns)
            self._fleet.touched(it.prefill_replica)
            it.prefill_slot = -1
        return 0

    cdef int _await_transport(self) except -1 nogil:
        """Have an event when the transport changes next."""
        cdef int64_t next_ns = self.transport.next_ns()
        if next_ns < self._awaited_ns:
            self._awaited_ns = next_ns
            return self._fleet.events.push(next_ns, TRANSFER, TRANSFER, 0, -1)
        return 0

    cdef int handle(self, const Event* event) except -1 nogil:
        cdef int64_t now_ns = event.time_ns
        cdef int32_t row = <int32_t>event.payload
        if event.kind == HAND_OVER:
            self.go_on(row, now_ns)
            return 0
        if row >= 0:
            return self._start(row, now_ns) if self._transfers[row].stage == SHAKING_HANDS else 0
        if now_ns != self._awaited_ns:                      # another event came before it
            return 0
        self._awaited_ns = NEVER_NS
        row = self.transport.take(now_ns)
        while row >= 0:
            self._come(row, now_ns)
            row = self.transport.take(now_ns)
        return self._await_transport()

    # ---- a client has left

    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil:
        cdef Transfer* it = &self._transfers[row]
        cdef int32_t leg = row + self._num_clients
        if self._requests[row].replica < 0 and it.prefill_replica >= 0:     # it was sent, and no decode replica had it
            (<Gateway>self._ends[it.prefill_replica].first).gone(row, now_ns)
        if (it.stage == PREFILLING or it.stage == PROMPT_ONLY) and self._requests[leg].status < COMPLETED:
            return self._fleet.withdraw(leg, self._requests[row].status, now_ns)
        if it.stage == READY:                               # before its KV was asked for
            return self._let_go(row, now_ns + self._notice_ns)
        return 0

    # ---- what came of it

    def report(self, run):
        """See Operation: what the request table says of those that were split begins with the first leg."""
        requests, every, table = run.workload.requests, self._fleet.workload.requests, self.table
        legs, split = every[len(table):], table["prefill_replica"] >= 0
        for name in ("enqueued_ns", "scheduled_ns", "cached_tokens"):
            requests[name][split] = legs[name][split]
        requests["preemptions"] += legs["preemptions"]
        at_prefill = split & (requests["replica"] < 0)
        requests["replica"][at_prefill] = table["prefill_replica"][at_prefill]
        run.transfers = table
        run.transfer_counts = {"count": self.completed, "bytes": self.num_bytes, "failed": self.failed,
                               "local": self.local}
        if run.journeys is not None:
            run.journeys = merged_journeys(run.journeys, len(table))
        run.legs["request"] %= max(len(table), 1)

    def check(self):
        """Raise RuntimeError unless the transport agrees with what is under way."""
        self.transport.check()
        if self.started != self.completed + self.failed + self.transport.num_under_way:
            raise RuntimeError(f"{self.started} transfers began, {self.completed} came to their end, {self.failed} "
                               f"did not and {self.transport.num_under_way} are under way")


def merged_journeys(journeys, num_clients):
    """Return the journeys of clients, with what befell their prefill legs."""
    merged, legs = journeys[:num_clients].copy(), journeys[num_clients:]
    for name in ("downtime_ns", "retries", "migrations"):
        merged[name] += legs[name]
    return merged
