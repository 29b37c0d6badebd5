"""Max-min fair rates of flows on links, updated as flows begin and end; see fair_share.pxd."""
cimport cython
from libc.stdlib cimport calloc, free, malloc

from simulator.core.errors cimport broken
from simulator.core.memory cimport resize

cdef enum:
    MAX_ROUNDS = 16             # of widening, before all flows are shared out again

cdef double SLACK = 1e-9        # rates that differ by less than this part are equal


@cython.final
cdef class FairShare:
    """Flows over links, and their max-min fair rates.

    Parameters
    ----------
    capacities : array of float64
        Bytes per ns of each link.
    max_hops : int
        Links that a flow passes, at most.
    """

    def __cinit__(self, const double[::1] capacities, int32_t max_hops):
        cdef int32_t i
        self.num_links, self._max_hops = <int32_t>capacities.shape[0], max_hops
        self._links = <Link*>calloc(self.num_links + 1, sizeof(Link))
        self._changed = <int32_t*>malloc((self.num_links + 1) * sizeof(int32_t))
        self._touched = <int32_t*>malloc((self.num_links + 1) * sizeof(int32_t))
        self._offers = <Offer*>malloc((self.num_links + 1) * sizeof(Offer))
        if not (self._links and self._changed and self._touched and self._offers):
            raise MemoryError()
        for i in range(self.num_links):
            self._links[i].capacity, self._links[i].first = capacities[i], -1

    def __dealloc__(self):
        free(self._links)
        free(self._changed)
        free(self._touched)
        free(self._offers)
        free(self.flows)
        free(self._hops)
        free(self.affected)

    cdef int reserve(self, int32_t room) except -1 nogil:
        cdef int32_t slot
        if room <= self.room:
            return 0
        resize(&self.flows, room * sizeof(Flow))
        resize(&self._hops, <size_t>room * self._max_hops * sizeof(Hop))
        resize(&self.affected, room * sizeof(int32_t))
        for slot in range(self.room, room):
            self.flows[slot].num_hops, self.flows[slot].solve = 0, 0
        self.room = room
        return 0

    cdef void attach(self, int32_t slot, const int32_t* links, int32_t num_hops) noexcept nogil:
        cdef Flow* flow = &self.flows[slot]
        cdef int32_t i, index = slot * self._max_hops
        cdef Hop* hop
        cdef Link* link
        flow.num_hops, flow.bottleneck, flow.rate = num_hops, -1, 0.0
        for i in range(num_hops):
            hop, link = &self._hops[index + i], &self._links[links[i]]
            hop.link, hop.previous, hop.next = links[i], -1, link.first
            if link.first >= 0:
                self._hops[link.first].previous = index + i
            link.first = index + i
            link.num_flows += 1
        if flow.solve <= self._solve:
            self._affect(slot)

    cdef void detach(self, int32_t slot) noexcept nogil:
        cdef Flow* flow = &self.flows[slot]
        cdef int32_t i
        cdef Hop* hop
        cdef Link* link
        for i in range(flow.num_hops):
            hop = &self._hops[slot * self._max_hops + i]
            link = &self._links[hop.link]
            if hop.previous >= 0:
                self._hops[hop.previous].next = hop.next
            else:
                link.first = hop.next
            if hop.next >= 0:
                self._hops[hop.next].previous = hop.previous
            link.num_flows -= 1
            if not link.is_changed:
                link.is_changed = True
                self._changed[self._num_changed] = hop.link
                self._num_changed += 1
        if flow.bottleneck >= 0:
            self._links[flow.bottleneck].num_held -= 1
        flow.num_hops = 0

    cdef void clear(self) noexcept nogil:
        cdef int32_t i
        cdef Link* link
        for i in range(self.num_links):
            link = &self._links[i]
            link.first, link.num_flows, link.num_held, link.is_changed = -1, 0, 0, False
        for i in range(self.room):
            self.flows[i].num_hops = 0
        self._num_changed = self.num_affected = 0
        self._solve += 1

    cdef void _affect(self, int32_t slot) noexcept nogil:
        self.flows[slot].solve = self._solve + 1
        self.affected[self.num_affected] = slot
        self.num_affected += 1

    cdef void solve(self) noexcept nogil:
        cdef int32_t slot, rounds = 0
        self._collect()
        while self.num_affected:
            self._touch()
            self._fill()
            rounds += 1
            if not self._widen():
                break
            if rounds == MAX_ROUNDS:
                for slot in range(self.room):
                    if self.flows[slot].num_hops and self.flows[slot].solve <= self._solve:
                        self._affect(slot)
        self._solve += 1

    cdef void _collect(self) noexcept nogil:
        """Affect flows with a bottleneck that another flow left; attached flows are affected already."""
        cdef int32_t i, hop, slot, num_attached = self.num_affected
        cdef Link* link
        self.num_affected = 0
        for i in range(num_attached):
            if self.flows[self.affected[i]].num_hops:       # it has not ended again
                self.affected[self.num_affected] = self.affected[i]
                self.num_affected += 1
        for i in range(self._num_changed):
            link = &self._links[self._changed[i]]
            link.is_changed = False
            hop = link.first if link.num_held else -1
            while hop >= 0:
                slot = hop // self._max_hops
                if self.flows[slot].bottleneck == self._changed[i] and self.flows[slot].solve <= self._solve:
                    self._affect(slot)
                hop = self._hops[hop].next
        self._num_changed = 0

    cdef void _touch(self) noexcept nogil:
        """Set up the links that affected flows pass."""
        cdef int32_t i, k, number
        cdef Flow* flow
        self._round += 1
        self._num_touched = 0
        for i in range(self.num_affected):
            flow = &self.flows[self.affected[i]]
            flow.is_open = True
            for k in range(flow.num_hops):
                number = self._hops[self.affected[i] * self._max_hops + k].link
                if self._links[number].round != self._round:
                    self._open(number)

    cdef void _open(self, int32_t number) noexcept nogil:
        cdef Link* link = &self._links[number]
        cdef int32_t hop = link.first
        cdef Flow* flow
        link.round, link.residual, link.share, link.num_open = self._round, link.capacity, -1.0, 0
        while hop >= 0:
            flow = &self.flows[hop // self._max_hops]
            if flow.solve > self._solve:
                link.num_open += 1
            else:
                link.residual -= flow.rate
            hop = self._hops[hop].next
        link.num_affected = link.num_open
        self._touched[self._num_touched] = number
        self._num_touched += 1

    cdef void _fill(self) noexcept nogil:
        """Raise all affected rates together; those on a link that is full stay where they are."""
        cdef int32_t i
        cdef Link* link
        cdef double share
        self._num_offers = self._num_touched
        for i in range(self._num_touched):
            link = &self._links[self._touched[i]]
            self._offers[i] = Offer(link.residual / link.num_open, self._touched[i])
        for i in range(self._num_offers // 2 - 1, -1, -1):
            self._sift_down(i)
        while self._num_offers:
            link = &self._links[self._offers[0].link]
            if link.num_open:
                share = link.residual / link.num_open
                if share - self._offers[0].share > 1e-12 * abs(self._offers[0].share):  # others of its flows got less
                    self._offers[0].share = share
                    self._sift_down(0)
                    continue
                self._freeze(self._offers[0].link, share if share > 0.0 else 0.0)
            self._num_offers -= 1
            self._offers[0] = self._offers[self._num_offers]
            self._sift_down(0)

    cdef void _freeze(self, int32_t number, double share) noexcept nogil:
        """Give the open flows of a full link their rate."""
        cdef int32_t hop = self._links[number].first, k, first
        cdef Flow* flow
        cdef Link* link
        self._links[number].share = share
        while hop >= 0:
            flow = &self.flows[hop // self._max_hops]
            if flow.solve > self._solve and flow.is_open:
                if flow.bottleneck >= 0:
                    self._links[flow.bottleneck].num_held -= 1
                self._links[number].num_held += 1
                flow.is_open, flow.rate, flow.bottleneck = False, share, number
                first = hop - hop % self._max_hops
                for k in range(first, first + flow.num_hops):
                    link = &self._links[self._hops[k].link]
                    link.residual -= share
                    link.num_open -= 1
            hop = self._hops[hop].next

    cdef int32_t _widen(self) noexcept nogil:
        """Affect flows without bottleneck, or faster than an affected one at its bottleneck; return their number."""
        cdef int32_t i, num_added = 0
        cdef Link* link
        for i in range(self._num_touched):
            link = &self._links[self._touched[i]]
            if link.num_affected < link.num_flows:
                num_added += self._widen_at(link, self._touched[i])
        return num_added

    cdef int32_t _widen_at(self, Link* link, int32_t number) noexcept nogil:
        cdef double load = 0.0, fastest = 0.0
        cdef int32_t hop = link.first, num_added = 0
        cdef bint is_full, is_over
        cdef Flow* flow
        while hop >= 0:
            flow = &self.flows[hop // self._max_hops]
            load += flow.rate
            if flow.rate > fastest:
                fastest = flow.rate
            hop = self._hops[hop].next
        is_full, is_over = load >= link.capacity * (1.0 - SLACK), load > link.capacity * (1.0 + SLACK)
        hop = link.first
        while hop >= 0:
            flow = &self.flows[hop // self._max_hops]
            if flow.solve <= self._solve and (
                    is_over
                    or (flow.bottleneck == number and not (is_full and flow.rate >= fastest * (1.0 - SLACK)))
                    or (link.share >= 0.0 and flow.rate > link.share * (1.0 + SLACK))):
                self._affect(hop // self._max_hops)
                num_added += 1
            hop = self._hops[hop].next
        return num_added

    cdef void _sift_down(self, int32_t hole) noexcept nogil:
        cdef Offer entry = self._offers[hole]
        cdef int32_t child = 2 * hole + 1
        while child < self._num_offers:
            if child + 1 < self._num_offers and self._offers[child + 1].share < self._offers[child].share:
                child += 1
            if entry.share <= self._offers[child].share:
                break
            self._offers[hole] = self._offers[child]
            hole = child
            child = 2 * hole + 1
        self._offers[hole] = entry

    cpdef int check(self) except -1 nogil:
        cdef int32_t i, hop, slot, num_full = 0, num_flows = 0
        cdef double load, fastest
        cdef Flow* flow
        for slot in range(self.room):
            num_flows += self.flows[slot].num_hops > 0
        for i in range(self.num_links):
            load = fastest = 0.0
            hop = self._links[i].first
            while hop >= 0:
                flow = &self.flows[hop // self._max_hops]
                load, fastest = load + flow.rate, max(fastest, flow.rate)
                hop = self._hops[hop].next
            if load > self._links[i].capacity * (1.0 + 2.0 * SLACK):
                return broken("network: a link carries more than it can")
            hop = self._links[i].first
            while hop >= 0:
                flow = &self.flows[hop // self._max_hops]
                if flow.bottleneck == i:
                    num_full += 1
                    if (load < self._links[i].capacity * (1.0 - 2.0 * SLACK)
                            or flow.rate < fastest * (1.0 - 2.0 * SLACK)):
                        return broken("network: a flow could be faster at no slower flow's expense")
                hop = self._hops[hop].next
        if num_full != num_flows:
            return broken("network: a flow has no bottleneck")
        return 0

    def begin(self, int32_t slot, list links) -> None:
        """Attach a flow, for tests and experiments by hand."""
        cdef int32_t buffer[64]
        if not 0 < len(links) <= self._max_hops or len(links) > 64 or len(set(links)) < len(links):
            raise ValueError(f"expected 1 to {self._max_hops} different links, found {links}")
        for i, link in enumerate(links):
            if not 0 <= link < self.num_links:
                raise ValueError(f"no link {link} among {self.num_links}")
            buffer[i] = link
        self.reserve(slot + 1)
        if self.flows[slot].num_hops:
            raise ValueError(f"slot {slot} has a flow")
        self.attach(slot, buffer, <int32_t>len(links))

    def end(self, int32_t slot) -> None:
        """Detach a flow."""
        if not 0 <= slot < self.room or self.flows[slot].num_hops == 0:
            raise ValueError(f"slot {slot} has no flow")
        self.detach(slot)

    def rates(self) -> dict:
        """Return the fair rate of each flow by slot."""
        self.solve()
        self.num_affected = 0
        return {slot: self.flows[slot].rate for slot in range(self.room) if self.flows[slot].num_hops}
