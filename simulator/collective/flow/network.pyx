"""The time that messages take on a network where flows share links max-min fairly.

A message waits for those it depends on and until its connection is free, then for the send latency; it then flows at
its fair rate until its last byte has left, and is done when its sender has the acknowledgement: propagation there and
back, and one packet time at each further hop, as switches store and forward. With m bytes in packets of p with headers
of h, alone on its route of links with rates b and latencies l:

    send latency + (m + ceil(m / p) h) / min b + (min(m, p) + h) (sum of 1 / b - 1 / min b) + 2 (sum of l)

That a receiver learns of a message when the sender's acknowledgement is in, is how SimAI's NS-3 front end works
(aliyun/SimAI, network_frontend/ns3/entry.h, qp_finish), and that a connection is free when the last byte has left
(astra-sim/system/collective/NcclTreeFlowModel.cc); packets of 9000 bytes with 48 of headers are its settings.
Congestion control, queues and loss are not simulated: rates are fair at every instant.
"""
cimport cython
from libc.math cimport INFINITY, ceil, floor
from libc.stdlib cimport free
from libc.string cimport memcpy

import numpy as np

from simulator.core.debug cimport SIM_DEBUG
from simulator.core.errors cimport broken
from simulator.core.memory cimport resize
from simulator.collective.flow.plan cimport Edge, Lane
from simulator.collective.flow.routes cimport MAX_HOPS, Message

RECORD = np.dtype([("lane", "i4"), ("step", "i4"), ("began_ns", "f8"), ("left_ns", "f8"), ("done_ns", "f8"),
                   ("wire_bytes", "f8")])

MAX_BYTES = 1e18
cdef double INSTANT_NS = 1e-3       # events that are closer are one: they would be so but for rounding


cdef inline double first_time(IndexHeap heap) noexcept nogil:
    """Return the time of the first slot; infinity if there is none."""
    cdef double time_ns = INFINITY
    if heap.size > 0:
        memcpy(&time_ns, &heap.at(0).key, sizeof(double))
    return time_ns


cdef inline void put_time(IndexHeap heap, int32_t slot, double time_ns) noexcept nogil:
    """Add a slot, or move it to another time."""
    cdef int64_t bits
    memcpy(&bits, &time_ns, sizeof(double))
    heap.put(slot, bits, 0)


@cython.final
cdef class FlowNetwork:
    """A network that carries collectives.

    Parameters
    ----------
    topology : Topology
    send_latency_ns : float
        Latency of each message before its first byte leaves.
    packet_bytes, header_bytes : float
        Payload and header of a packet.
    seed : int
        Seed of the choice among equal paths; 0: as NS-3 chooses.
    """

    def __cinit__(self, topology, *, double send_latency_ns=6000.0, double packet_bytes=9000.0,
                  double header_bytes=48.0, object seed=0):
        self.routes = Routes(topology, seed)
        self._max_hops = min(MAX_HOPS, 2 + 2 * topology.num_switches)
        if topology.num_switches:
            self._max_hops = min(MAX_HOPS, 2 + self.routes.longest_hops)
        self.share = FairShare(self.routes.bytes_per_ns, self._max_hops)
        self._starts, self._ends = IndexHeap(), IndexHeap()
        self._send_latency_ns, self._packet_bytes, self._header_bytes = send_latency_ns, packet_bytes, header_bytes

    def __dealloc__(self):
        free(self._sendings)
        free(self._free)

    def simulate(self, Plan plan, double num_bytes) -> float:
        """Return the nanoseconds of a collective of `num_bytes`."""
        self._check_input(plan, num_bytes)
        return self.run(plan, num_bytes)

    def record(self, Plan plan, double num_bytes):
        """Return the times of every message, an array of RECORD in order of their ends."""
        self._check_input(plan, num_bytes)
        rows = np.empty(plan.num_messages, RECORD)
        self._record, self._records = rows, True
        try:
            self.run(plan, num_bytes)
        finally:
            self._records = False
        return rows

    def _check_input(self, plan, num_bytes):
        self.check_routes(plan)
        if not 0.0 <= num_bytes < MAX_BYTES:
            raise ValueError(f"expected 0 to {MAX_BYTES:g} bytes, found {num_bytes}")

    def check_routes(self, Plan plan) -> None:
        """Raise ValueError unless every lane has a route."""
        cdef int32_t links[MAX_HOPS]
        cdef Py_ssize_t i
        cdef const Lane* lane
        cdef int num_hops
        for i in range(plan.lanes.shape[0]):
            lane = &plan.lanes[i]
            if not (0 <= lane.source < self.routes.first_switch and 0 <= lane.target < self.routes.first_switch):
                raise ValueError(f"no GPUs {lane.source} and {lane.target} among {self.routes.num_gpus}")
            num_hops = self.routes.route(Message(lane.source, lane.target, lane.port), links)
            if not 0 < num_hops <= self._max_hops:
                raise ValueError(f"no way from GPU {lane.source} to GPU {lane.target}")

    cdef int _reset(self, Plan plan, double num_bytes) except -1:
        self._plan, self._num_bytes = plan, num_bytes
        self._waiting = np.array(plan.joins)
        self._joined_ns = np.zeros(len(self._waiting))
        self._starts.clear()
        self._ends.clear()
        self.share.clear()
        self._num_free = self._room
        for i in range(self._room):
            self._free[i] = self._room - 1 - i
        self._end_ns = 0.0
        self.num_solves = self.num_rates = self._num_recorded = 0
        return 0

    cdef double run(self, Plan plan, double num_bytes) except -1 nogil:
        cdef Py_ssize_t i
        cdef double now_ns
        with gil:
            self._reset(plan, num_bytes)
        for i in range(plan.first.shape[0]):
            self._pend(plan.first[i], 0, self._send_latency_ns)
        while True:
            now_ns = min(first_time(self._starts), first_time(self._ends))
            if now_ns == INFINITY:
                break
            self._advance(now_ns)
        if self._num_free != self._room:
            return broken("network: messages are left over")
        return self._end_ns

    cdef int _advance(self, double now_ns) except -1 nogil:
        """Process all events of one instant."""
        while first_time(self._ends) <= now_ns + INSTANT_NS:
            self._finish(self._ends.pop(), now_ns)
        while first_time(self._starts) <= now_ns + INSTANT_NS:
            self._begin(self._starts.pop(), now_ns)
        return self._share_out(now_ns)

    cdef int _pend(self, int32_t lane, int32_t step, double time_ns) except -1 nogil:
        """Schedule the begin of a message."""
        cdef int32_t slot
        if self._num_free == 0:
            self._grow()
        self._num_free -= 1
        slot = self._free[self._num_free]
        self._sendings[slot].lane, self._sendings[slot].step = lane, step
        put_time(self._starts, slot, time_ns)
        return 0

    cdef int _begin(self, int32_t slot, double now_ns) except -1 nogil:
        """Begin a message, which has no rate yet."""
        cdef Sending* sending = &self._sendings[slot]
        cdef const Lane* lane = &self._plan.lanes[sending.lane]
        cdef int32_t links[MAX_HOPS]
        cdef double payload = max(floor(lane.share * self._num_bytes), 1.0)
        cdef double packet = min(payload, self._packet_bytes) + self._header_bytes
        cdef double rate, slowest = INFINITY, latency_ns = 0.0, ns_per_byte = 0.0
        cdef int i, num_hops = self.routes.route(
            Message(lane.source, lane.target, lane.port + lane.port_stride * <uint32_t>sending.step), links)
        for i in range(num_hops):
            rate = self.routes.bytes_per_ns[links[i]]
            slowest = min(slowest, rate)
            latency_ns += self.routes.latency_ns[links[i]]
            ns_per_byte += 1.0 / rate
        sending.left_bytes = payload + ceil(payload / self._packet_bytes) * self._header_bytes
        sending.tail_ns = 2.0 * latency_ns + packet * (ns_per_byte - 1.0 / slowest)
        sending.since_ns = sending.began_ns = now_ns
        sending.rate = 0.0
        self.share.attach(slot, links, num_hops)
        return 0

    cdef int _finish(self, int32_t slot, double now_ns) except -1 nogil:
        """End a message, and let the messages that waited for it begin."""
        cdef Sending sending = self._sendings[slot]
        cdef const Lane* lane = &self._plan.lanes[sending.lane]
        cdef const Edge* edge
        cdef double done_ns = now_ns + sending.tail_ns
        cdef int32_t i
        self.share.detach(slot)
        self._free[self._num_free] = slot
        self._num_free += 1
        self._end_ns = max(self._end_ns, done_ns)
        if self._records:
            self._write(&sending, now_ns)
        if sending.step + 1 < lane.num_steps:
            self._arrive(sending.lane, sending.step + 1, now_ns)
        for i in range(lane.first_edge, lane.first_edge + lane.num_edges):
            edge = &self._plan.edges[i]
            if sending.step + edge.lag < self._plan.lanes[edge.lane].num_steps:
                self._arrive(edge.lane, sending.step + edge.lag, done_ns)
        return 0

    cdef int _arrive(self, int32_t lane, int32_t step, double time_ns) except -1 nogil:
        """Record that one of the messages that a message waits for is done."""
        cdef int32_t join = self._plan.lanes[lane].join
        if join >= 0:
            join += step
            self._joined_ns[join] = time_ns = max(self._joined_ns[join], time_ns)
            self._waiting[join] -= 1
            if self._waiting[join] > 0:
                return 0
        return self._pend(lane, step, time_ns + self._send_latency_ns)

    cdef int _share_out(self, double now_ns) except -1 nogil:
        """Set the fair rates of flows, and their ends at these rates."""
        cdef int32_t i, slot
        cdef Sending* sending
        cdef double rate
        self.share.solve()
        self.num_solves += 1
        self.num_rates += self.share.num_affected
        for i in range(self.share.num_affected):
            slot = self.share.affected[i]
            sending, rate = &self._sendings[slot], self.share.flows[slot].rate
            if rate != sending.rate:
                sending.left_bytes = max(0.0, sending.left_bytes - sending.rate * (now_ns - sending.since_ns))
                sending.since_ns, sending.rate = now_ns, rate
                put_time(self._ends, slot, now_ns + sending.left_bytes / rate)
        self.share.num_affected = 0
        if self.checks or SIM_DEBUG:
            self.share.check()
            self._starts.check()
            self._ends.check()
        return 0

    cdef void _write(self, const Sending* sending, double now_ns) noexcept nogil:
        cdef const Lane* lane = &self._plan.lanes[sending.lane]
        cdef double payload = max(floor(lane.share * self._num_bytes), 1.0)
        self._record[self._num_recorded] = MessageRow(
            sending.lane, sending.step, sending.began_ns, now_ns, now_ns + sending.tail_ns,
            payload + ceil(payload / self._packet_bytes) * self._header_bytes)
        self._num_recorded += 1

    cdef int _grow(self) except -1 nogil:
        """Make room for twice as many messages at once."""
        cdef int32_t slot, room = max(2 * self._room, 1024)
        resize(&self._sendings, room * sizeof(Sending))
        resize(&self._free, room * sizeof(int32_t))
        self.share.reserve(room)
        self._starts.reserve(room)
        self._ends.reserve(room)
        for slot in range(room - 1, self._room - 1, -1):
            self._free[self._num_free] = slot
            self._num_free += 1
        self._room = room
        return 0
