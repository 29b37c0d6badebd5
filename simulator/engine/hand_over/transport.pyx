"""KV transfers between replicas; see transport.pxd."""
from libc.math cimport INFINITY
from libc.stdlib cimport free
cimport cython

from simulator.core.arithmetic cimport round_half_up
from simulator.core.clock cimport NEVER_NS
from simulator.core.errors cimport broken
from simulator.core.memory cimport resize

import numpy as np

CONTENTIONS = ("fair", "none", "at_start", "fifo")      # order as in `Contention`

# At one instant transfers end before others begin to flow, which would slow them down at the very end.
cdef int64_t BEGINNING = <int64_t>1 << 60

cdef enum:                      # columns of _ends
    OUT
    INTO
    INNER_OUT
    INNER_INTO
    DOMAIN
    POOL


@cython.final
cdef class Transport:
    """The links between the replicas of a cluster.

    network : plan.Network. contention : one of CONTENTIONS. base_ns : of each transfer.
    resolution_ns : durations are rounded up to multiples of it; not with fair shares, which change meanwhile.
    """

    def __init__(self, network, contention, int64_t base_ns, int64_t resolution_ns=1):
        self._contention, self._base_ns = CONTENTIONS.index(contention), base_ns
        self._resolution_ns = resolution_ns
        self._capacities, self._ends, self._narrow = network.capacities, network.ends, network.narrow
        self._due = IndexHeap()
        self._busy_until_ns = np.zeros(len(network.ends), np.int64)
        if self._contention == FAIR:
            self._share = FairShare(network.capacities, MAX_HOPS)

    def __dealloc__(self):
        free(self._transits)
        free(self._free)

    cdef int32_t begin(self, int32_t row, int32_t source, int32_t destination, double num_bytes,
                       int64_t now_ns) except -1 nogil:
        self.num_begun += 1
        self.depths += self.num_under_way + 1
        return self._begin(row, source, destination, num_bytes, self._base_ns, now_ns)

    cdef int32_t go_on(self, int32_t row, int32_t source, int32_t destination, double num_bytes,
                       int64_t now_ns) except -1 nogil:
        return self._begin(row, source, destination, num_bytes, 0, now_ns)

    cdef int32_t _begin(self, int32_t row, int32_t source, int32_t destination, double num_bytes, int64_t base_ns,
                        int64_t now_ns) except -1 nogil:
        cdef int32_t slot = self._occupy()
        cdef Transit* it = &self._transits[slot]
        cdef int64_t end_ns = now_ns + base_ns
        it.row, it.source, it.destination, it.left_bytes, it.flows = row, source, destination, num_bytes, False
        it.num_links = self._path(source, destination, it.links)
        it.rate = self._rate(it.links, it.num_links)
        self.num_under_way += 1
        self.peak_under_way = max(self.peak_under_way, self.num_under_way)
        if self._contention == AT_START:
            it.rate /= <double>self.num_under_way
        if self._contention == FIFO:
            end_ns = max(now_ns, self._busy_until_ns[destination]) + base_ns
        if self._contention != FAIR:
            end_ns = self._rounded_ns(end_ns + round_half_up(num_bytes / it.rate), now_ns)
            self._busy_until_ns[destination] = end_ns
        self._due.put(slot, end_ns, self._order + (BEGINNING if self._contention == FAIR else 0))
        self._order += 1
        return slot

    cdef int stop(self, int32_t slot, int64_t now_ns) except -1 nogil:
        cdef bint flows = self._transits[slot].flows
        self._vacate(slot)
        if flows:
            self._go_on(now_ns)
        return 0

    cdef int32_t take(self, int64_t now_ns) except -2 nogil:
        cdef int32_t slot, row
        while self._due.next_ns() <= now_ns:
            slot = self._due.top()
            if self._contention == FAIR and not self._transits[slot].flows:
                self._let_flow(now_ns)
                continue
            row = self._transits[slot].row
            self._vacate(slot)
            if self._contention == FAIR:
                self._go_on(now_ns)
            return row
        return -1

    cdef void _let_flow(self, int64_t now_ns) noexcept nogil:
        """Start the flow of transfers with an ended base; transfers that end at this instant have been removed."""
        cdef int32_t slot = self._due.top()
        cdef int64_t order
        while slot >= 0 and self._due.next_ns() <= now_ns and not self._transits[slot].flows:
            self._transits[slot].flows, self._transits[slot].rate = True, 0.0
            self._transits[slot].since_ns = now_ns
            self._share.attach(slot, self._transits[slot].links, self._transits[slot].num_links)
            order = self._due.at(0).tie - BEGINNING
            self._due.remove(slot)
            self._due.put(slot, NEVER_NS, order)
            slot = self._due.top()
        self._go_on(now_ns)

    cdef void _go_on(self, int64_t now_ns) noexcept nogil:
        """Apply changed fair rates to their flows; at an unchanged rate the end stays unchanged."""
        cdef int32_t i, slot
        cdef Transit* it
        cdef double rate
        self._share.solve()
        for i in range(self._share.num_affected):
            slot = self._share.affected[i]
            it, rate = &self._transits[slot], self._share.flows[slot].rate
            if rate == it.rate:
                continue
            it.left_bytes = max(it.left_bytes - it.rate * <double>(now_ns - it.since_ns), 0.0)
            it.rate, it.since_ns = rate, now_ns
            self._due.put(slot, now_ns + round_half_up(it.left_bytes / rate) if rate > 0.0 else NEVER_NS, 0)
        self._share.num_affected = 0

    cdef int64_t alone_ns(self, int32_t source, int32_t destination, double num_bytes) noexcept nogil:
        cdef int32_t links[MAX_HOPS]
        cdef int32_t count = self._path(source, destination, links)
        return self._rounded_ns(self._base_ns + round_half_up(num_bytes / self._rate(links, count)), 0)

    cdef int64_t _rounded_ns(self, int64_t end_ns, int64_t now_ns) noexcept nogil:
        """Return when a transfer ends: after a whole number of resolution units, at least one."""
        cdef int64_t units = (end_ns - now_ns + self._resolution_ns - 1) // self._resolution_ns
        if self._contention == FAIR or self._resolution_ns == 1:
            return end_ns
        return now_ns + max(units, 1) * self._resolution_ns

    cdef int32_t _path(self, int32_t source, int32_t destination, int32_t* links) noexcept nogil:
        cdef int32_t narrow_out = self._narrow[source, self._ends[destination, POOL]]
        cdef int32_t narrow_into = self._narrow[destination, self._ends[source, POOL]]
        cdef int32_t count = 2
        if self._ends[source, INNER_OUT] >= 0 and self._ends[source, DOMAIN] == self._ends[destination, DOMAIN]:
            links[0], links[1] = self._ends[source, INNER_OUT], self._ends[destination, INNER_INTO]
            return 2
        links[0], links[1] = self._ends[source, OUT], self._ends[destination, INTO]
        if narrow_out >= 0:
            links[count] = narrow_out
            count += 1
        if narrow_into >= 0:
            links[count] = narrow_into
            count += 1
        return count

    cdef double _rate(self, const int32_t* links, int32_t num_links) noexcept nogil:
        cdef double rate = INFINITY
        cdef int32_t i
        for i in range(num_links):
            rate = min(rate, self._capacities[links[i]])
        return rate

    cdef int32_t _occupy(self) except -1 nogil:
        cdef int32_t room = 2 * self._room + 16, slot
        if self._num_free == 0:
            resize(&self._transits, room * sizeof(Transit))
            resize(&self._free, room * sizeof(int32_t))
            self._due.reserve(room)
            if self._share is not None:
                self._share.reserve(room)
            for slot in range(room - 1, self._room - 1, -1):
                self._transits[slot].row = -1
                self._free[self._num_free] = slot
                self._num_free += 1
            self._room = room
        self._num_free -= 1
        return self._free[self._num_free]

    cdef void _vacate(self, int32_t slot) noexcept nogil:
        if self._transits[slot].flows:
            self._share.detach(slot)
        self._due.remove(slot)
        self._transits[slot].row, self._transits[slot].flows = -1, False
        self._free[self._num_free] = slot
        self._num_free += 1
        self.num_under_way -= 1

    def crowding(self):
        """Return concurrency of transfers, for the summary."""
        return {"peak_concurrent": self.peak_under_way,
                "mean_depth_at_start": <double>self.depths / self.num_begun if self.num_begun else None}

    # ---- the face for tests and exploration

    def check(self):
        """Raise RuntimeError unless heap, slots and rates agree."""
        cdef int32_t slot, under_way = 0
        self._due.check()
        for slot in range(self._room):
            under_way += self._transits[slot].row >= 0
        if under_way != self.num_under_way or under_way + self._num_free != self._room or under_way != self._due.size:
            broken("Transport: transfers, slots and heap do not agree")
        if self._share is not None:
            self._share.check()

    def alone(self, source, destination, num_bytes):
        """Return the duration of a transfer, in ns, with no other transfer in progress."""
        return self.alone_ns(source, destination, num_bytes)

    def start(self, row, source, destination, num_bytes, now_ns):
        """Begin a transfer; return its slot."""
        return self.begin(row, source, destination, num_bytes, now_ns)

    def end(self, slot, now_ns):
        """Stop a transfer."""
        self.stop(slot, now_ns)

    def ended(self, now_ns):
        """Return the rows with transfers that end by `now_ns`, in order."""
        rows, row = [], self.take(now_ns)
        while row >= 0:
            rows.append(row)
            row = self.take(now_ns)
        return rows

    def next_change_ns(self):
        """Return when the next change is due; None: no transfer is in progress."""
        return self.next_ns() if self.next_ns() < NEVER_NS else None

    def rates(self):
        """Return bytes per ns of flowing transfers, by row."""
        return {self._transits[slot].row: self._transits[slot].rate for slot in range(self._room)
                if self._transits[slot].row >= 0 and (self._share is None or self._transits[slot].flows)}
