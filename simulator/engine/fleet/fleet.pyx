"""The replicas of a cluster on one clock, and the events that concern them."""
from libc.stdlib cimport calloc, free
from libc.string cimport memmove
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.memory cimport prefetch, prefetch_lines
from simulator.core.row_list cimport add_row
from simulator.domain.request cimport COMPLETED, REJECTED, TIMED_OUT, WAITING
from simulator.engine.fleet.lookahead cimport AHEAD, BEHIND, STARTED, bring, can_lag, next_departure_ns, post, take_in
from simulator.engine.fleet.delayed cimport queue_delay_ns
from simulator.engine.fleet.events cimport ENQUEUE, HAND_OVER, RECALL, TIME_OUT
from simulator.engine.fleet.front_end cimport FrontEnd
from simulator.engine.fleet.live_view cimport LiveView


cdef int64_t ROW_BITS = 0xffffffff      # of an entry of a front end; above them the number of the visit

cdef enum:
    MANY = 128                  # replicas: their states do not all stay in the nearer caches
    FINISH_LINES = 6            # cache lines that hold the first levels of a finish heap


cdef inline int32_t due_row(Replica replica) noexcept nogil:
    """Return the row of the decoding request that completes first; 0 if none decodes."""
    return replica.rank.due().row if replica.rank.finish.size() > 0 else 0


cdef inline int bring_up(Fleet fleet, int32_t index, int64_t until_ns, int64_t horizon_ns) except -1 nogil:
    """Let a replica take in the requests sent to it, and do all that is due before `until_ns`."""
    if fleet.lookaheads != NULL:
        return bring(&fleet.lookaheads[index], <Replica>fleet.entries[index].replica, until_ns, horizon_ns)
    return (<Replica>fleet.entries[index].replica).advance(until_ns, horizon_ns)


cdef inline void note_further(const FurtherEntry* entry) noexcept nogil:
    """Note in all further views of a replica that it has changed."""
    while entry != NULL and entry.view != NULL:
        (<LiveView>entry.view).note(entry.index)
        entry = entry.next


cdef inline void note_state(Fleet fleet, int32_t index, Replica replica, int64_t wake_ns) noexcept nogil:
    """Note when a replica acts next, and that it has changed."""
    cdef ReplicaEntry* entry = &fleet.entries[index]
    entry.finish = replica.rank.finish.first()
    entry.due = replica.rank.due()
    if fleet.lookaheads != NULL:
        fleet.wakes.set(index, next_departure_ns(&fleet.lookaheads[index], replica, replica.rank.scheduler))
    else:
        fleet.wakes.set(index, wake_ns)
        (<LiveView>entry.view).note(entry.index)
        if fleet.further_entries != NULL:
            note_further(&fleet.further_entries[index])


cdef inline bint is_between(Replica replica) noexcept nogil:
    """Return whether a replica has ended an iteration, and the next has not begun."""
    return replica.has_ended if replica.lock_step is None else replica.lock_step.has_ended


cdef void note_all(Fleet fleet, Replica replica) noexcept nogil:
    """Note that a replica and its lockstep siblings will go on before anything else happens."""
    cdef int32_t i
    for i in range(replica.first_sibling, replica.first_sibling + replica.num_siblings):
        note_state(fleet, i, <Replica>fleet.entries[i].replica, NEVER_NS)


cdef void note_siblings(Fleet fleet, Replica replica) noexcept nogil:
    """Call note_state for a replica and all that are in lock step with it."""
    cdef int32_t i
    for i in range(replica.first_sibling, replica.first_sibling + replica.num_siblings):
        note_state(fleet, i, <Replica>fleet.entries[i].replica, (<Replica>fleet.entries[i].replica).wake_ns)


cdef void note_touched(Fleet fleet, Replica replica) noexcept nogil:
    """Call note_state for a replica that was touched, and for lockstep siblings with a changed wake time."""
    cdef int32_t i
    if replica.lock_step is None:
        note_state(fleet, replica.index, replica, replica.wake_ns)
        return
    for i in range(replica.first_sibling, replica.first_sibling + replica.num_siblings):
        if i == replica.index or fleet.wakes.get(i) != (<Replica>fleet.entries[i].replica).wake_ns:
            note_state(fleet, i, <Replica>fleet.entries[i].replica, (<Replica>fleet.entries[i].replica).wake_ns)


cdef inline void note(Fleet fleet, int32_t index, Replica replica) noexcept nogil:
    if replica.lock_step is not None:
        note_siblings(fleet, replica)
    else:
        note_state(fleet, index, replica, replica.wake_ns)


cdef inline bint must_refuse(FrontEnd front) noexcept nogil:
    """Return whether the limits of the API server leave no room for a request that it checks now."""
    return front.limits is not None and not front.limits.admits()


cdef int enter(Fleet fleet, FrontEnd front, int32_t row, int32_t index, int64_t now_ns) except -1 nogil:
    """Check a request at a front end; it goes through, or on at once where that takes no time."""
    if must_refuse(front):
        return fleet.refuse(row, REJECTED, front.limits.cause, now_ns)
    if not front.takes_time:
        front.limits.add(row)
        return fleet._delay(row, index, now_ns)
    fleet._visits[row] += 1
    return front.take(fleet.events, <int64_t>fleet._visits[row] << 32 | row, fleet.requests[row].prompt_tokens, now_ns)


cdef int let_in(Fleet fleet, FrontEnd front, int32_t row, int64_t now_ns) except -1 nogil:
    """Check a request for the second time, now that it is tokenized, and hand it to its replica."""
    if must_refuse(front):
        return fleet.refuse(row, REJECTED, front.limits.cause, now_ns)
    if front.limits is not None:
        front.limits.add(row)
    return fleet._delay(row, fleet.requests[row].replica, now_ns)


cdef int let_through(Fleet fleet, FrontEnd front, int64_t now_ns) except -1 nogil:
    """Let requests go on that are finished at their front end."""
    cdef int64_t entry
    cdef int32_t row
    if not front.is_due(now_ns):                # another request entered meanwhile, which slows all down
        return 0
    entry = front.next_done()
    while entry >= 0:
        row = <int32_t>(entry & ROW_BITS)
        if (entry >> 32 == fleet._visits[row] and fleet.requests[row].status < COMPLETED
                and fleet.requests[row].replica >= 0):      # else its client sends it again, and it is not here yet
            let_in(fleet, front, row, now_ns)
        entry = front.next_done()
    return front.go_on(fleet.events, now_ns)


cdef int let_all_through(Fleet fleet, FrontEnd front, int32_t index, int64_t now_ns) except -1 nogil:
    """Let all requests of this replica go on at once; those of other ranks behind the front end stay in it."""
    cdef int64_t i, taken = 0
    cdef int32_t row
    for i in range(front.heap.size):
        row = <int32_t>(front.heap.entries[i].number & ROW_BITS)
        if front.heap.entries[i].number >> 32 == fleet._visits[row] and fleet.requests[row].replica == index:
            fleet._visits[row] += 1             # the heap entry of its last visit is void now
            fleet.enqueue(row, now_ns)
            taken += 1
    if taken == front.heap.size:
        front.clear()
    return 0


@cython.final
cdef class Fleet:
    """Replicas side by side.

    replicas : list of Replica, in order of their index.
    hosts : HostParameters of each.
    workload : its `requests` are written to.
    shared : build.Shared, the objects shared by all parts of the cluster.
    """

    def __init__(self, replicas, hosts, workload, shared):
        cdef Request[::1] requests = workload.requests
        cdef const Demand[::1] demands = workload.demands
        cdef Journey[::1] journeys
        cdef Replica replica
        cdef ReplicaEntry* entry
        self.replicas = list(replicas)
        self.num_replicas = len(self.replicas)
        self.workload, self.shared = workload, shared
        self.operations, self._views, self.front_ends = [], [], []
        self._num_rows, self.num_clients = len(requests), len(requests) - workload.num_prefill_legs
        self.entries = <ReplicaEntry*>calloc(self.num_replicas, sizeof(ReplicaEntry))
        self.shifts_ns = <int64_t*>calloc(self.num_replicas, sizeof(int64_t))
        if self.entries == NULL or self.shifts_ns == NULL:
            raise MemoryError()
        for replica, host in zip(self.replicas, hosts, strict=True):
            entry = &self.entries[replica.index]
            entry.replica = <void*>replica
            self.shifts_ns[replica.index] = host.shift_ns
            entry.queue_base_ns = host.queue_base_us * 1e3
            entry.queue_token_ns = host.queue_per_prompt_token_us * 1e3
            entry.resolution_ns = replica.latency.resolution_ns()
        self.recorder = shared.recorder
        self.departures = shared.departures
        self.gate = shared.gate
        self.legs = shared.legs
        self.events = EventQueue()
        self.wakes = WakeHeap(self.num_replicas)
        self.next_arrival_ns = NEVER_NS
        if len(requests):
            self.requests, self.demands = &requests[0], &demands[0]
            self.has_deadlines = workload.chunks is None and bool((workload.demands["deadline_ns"] >= 0).any())
            self.shifts_differ = self.has_deadlines and len({host.shift_ns for host in hosts}) > 1
        if shared.journeys is not None and len(requests):
            journeys = shared.journeys
            self.journeys = &journeys[0]

    def __dealloc__(self):
        free(self.entries)
        self._free_entries()
        free(self.shifts_ns)
        free(self._front_of)
        free(self._visits)
        free(self._between.rows)

    @property
    def defers(self):
        """Whether replicas act only before a request may leave them, or when their state is read."""
        return self.lookaheads != NULL

    def couple(self, may_lag=False):
        """Report departures from now on: some policy reads replicas or acts on requests that leave.

        may_lag : policies read no more than counts in flight, or so rarely that each look may bring all replicas up to
            date. Else all are kept up to date with every event.
        """
        cdef Replica replica
        self.coupled = True
        self.departures.keep()
        for replica in self.replicas:
            may_lag = may_lag and can_lag(replica)
        if may_lag:
            self._laggards = Laggards(self.replicas, self.wakes, self.departures)
            self.lookaheads = self._laggards.lookaheads
            for view in self._views:
                view.lag(self._laggards)

    def share_front_end(self, int32_t first, int32_t count, int32_t servers, host, limits=None):
        """Put `servers` processes before `count` replicas from `first` on.

        host : HostParameters, of the times. limits : see FrontEnd.
        """
        cdef FrontEnd front = FrontEnd(first, servers, host.front_end_us, host.front_end_per_prompt_token_us, limits)
        cdef int32_t index
        if self._front_of == NULL:
            self._front_of = <void**>calloc(self.num_replicas, sizeof(void*))
            self._visits = <int32_t*>calloc(max(self._num_rows, 1), sizeof(int32_t))
            if self._front_of == NULL or self._visits == NULL:
                raise MemoryError()
        self.front_ends.append(front)
        for index in range(first, first + count):
            self._front_of[index] = <void*>front

    def limits_of(self, int32_t index):
        """Return the QueueLimits of the server of a replica; None: it has none."""
        if self._front_of == NULL or self._front_of[index] == NULL:
            return None
        return (<FrontEnd>self._front_of[index]).limits

    def act_in_halves(self):
        """Let requests arrive between the end of an iteration and the beginning of the next."""
        self._in_halves = True

    def add_view(self, LiveView view, int32_t gateway):
        """Set the places in a view of the replicas that it shows."""
        cdef int32_t i, index
        self._views.append(view)
        for i in range(view.num_replicas):
            index = view.accounts[i].replica
            if self.entries[index].view != NULL:
                self._add_further_view(index, view, i, gateway)
                continue
            self.entries[index].view = <void*>view
            self.entries[index].index = i
            self.entries[index].gateway = gateway

    def _add_further_view(self, int32_t index, LiveView view, int32_t i, int32_t gateway):
        cdef FurtherEntry* entry
        if self.further_entries == NULL:
            self.further_entries = <FurtherEntry*>calloc(self.num_replicas, sizeof(FurtherEntry))
            if self.further_entries == NULL:
                raise MemoryError()
        entry = &self.further_entries[index]
        entry.gateway = gateway
        if entry.view != NULL:
            entry = <FurtherEntry*>calloc(1, sizeof(FurtherEntry))
            if entry == NULL:
                raise MemoryError()
            entry.next, self.further_entries[index].next = self.further_entries[index].next, entry
        entry.view, entry.index = <void*>view, i

    cdef void _free_entries(self) noexcept:
        cdef FurtherEntry* entry
        cdef int32_t index
        for index in range(self.num_replicas if self.further_entries != NULL else 0):
            while self.further_entries[index].next != NULL:
                entry = self.further_entries[index].next
                self.further_entries[index].next = entry.next
                free(entry)
        free(self.further_entries)

    cdef bint is_quiet(self) noexcept nogil:
        return (self.next_arrival_ns == NEVER_NS and self.events.size == self.num_ticks
                and self.wakes.top_time() == NEVER_NS)

    cdef int push_tick(self, int64_t time_ns, int kind, int64_t payload) except -1 nogil:
        self.events.push(time_ns, kind, kind, TICK, payload)
        self.num_ticks += 1
        return 0

    cdef int send(self, int32_t row, int32_t index, int64_t now_ns) except -1 nogil:
        self.requests[row].replica = index
        self.requests[row].status = WAITING
        if self.shifts_differ and self.demands[row].deadline_ns >= 0:
            if self.due_ns(row, index) < now_ns:            # nothing that it could do would be seen in time
                self.gate.leave(row, TIMED_OUT, -1)
                return 0
            self.watch_deadline(row, index, now_ns)
        if self._front_of != NULL and self._front_of[index] != NULL:
            return enter(self, <FrontEnd>self._front_of[index], row, index, now_ns)
        return self._delay(row, index, now_ns)

    cdef int _delay(self, int32_t row, int32_t index, int64_t now_ns) except -1 nogil:
        cdef int64_t delay_ns = queue_delay_ns(&self.entries[index], self.requests[row].prompt_tokens)
        if delay_ns > 0:
            return self.events.push(now_ns + delay_ns, ENQUEUE, ENQUEUE, index, row)
        return self.enqueue(row, now_ns)

    cdef int leave_front_end(self, int32_t index, int64_t now_ns) except -1 nogil:
        return let_through(self, <FrontEnd>self._front_of[index], now_ns)

    cdef int empty_front_end(self, int32_t index, int64_t now_ns) except -1 nogil:
        if self._front_of == NULL or self._front_of[index] == NULL:
            return 0
        return let_all_through(self, <FrontEnd>self._front_of[index], index, now_ns)

    cdef int enqueue(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t index = self.requests[row].replica
        cdef int order = BEHIND if self.departures.acted_until_ns(index, now_ns) > now_ns else AHEAD
        cdef int64_t departs_ns
        if self.requests[row].status >= COMPLETED:          # it left on the way to the queue
            return 0
        if self.lookaheads != NULL:
            departs_ns = self.wakes.get(index)
            order = self._order(index, order, now_ns)
            if post(&self.lookaheads[index], row, self.requests[row].prompt_tokens, now_ns, order, &departs_ns):
                self.requests[row].enqueued_ns = now_ns
                if departs_ns < self.wakes.get(index):
                    self.wakes.set(index, departs_ns)
                return 0
            bring(&self.lookaheads[index], <Replica>self.entries[index].replica, now_ns, now_ns)
        take_in(<Replica>self.entries[index].replica, row, now_ns, order)
        self.touched(index)
        return 0

    cdef inline int _order(self, int32_t index, int order, int64_t now_ns) noexcept nogil:
        """Return the Order of a request that reaches a lagging replica at this instant: before or after its step."""
        cdef Lookahead* lookahead = &self.lookaheads[index]
        if lookahead.last_ns == now_ns and self.departures.turn_ns == now_ns and self.departures.had_turn(
                index, lookahead.last_turn):
            order = STARTED
        lookahead.last_ns = now_ns
        lookahead.last_turn = self.departures.turns.size if self.departures.turn_ns == now_ns else 0
        return order

    cdef int64_t due_ns(self, int32_t row, int32_t index) noexcept nogil:
        return self.demands[row].deadline_ns - self.shifts_ns[index]

    cdef int watch_deadline(self, int32_t row, int32_t index, int64_t now_ns) except -1 nogil:
        if not self.shifts_differ or self.demands[row].deadline_ns < 0:
            return 0
        return self.events.push(max(self.due_ns(row, index), now_ns), TIME_OUT, TIME_OUT, index, row)

    cdef int refuse(self, int32_t row, int8_t status, int8_t cause, int64_t now_ns) except -1 nogil:
        self.gate.leave(row, status, -1)
        if self.journeys != NULL:
            self.journeys[row].cause = cause
        return 0

    cdef int withdraw(self, int32_t row, int8_t status, int64_t now_ns) except -1 nogil:
        cdef int32_t index = self.requests[row].replica
        cdef int kind = TIME_OUT if status == TIMED_OUT else RECALL
        if row >= self.num_clients or (self.num_clients < self._num_rows
                                       and self.requests[row + self.num_clients].status > COMPLETED):
            kind = HAND_OVER                                # with the request's other leg
        bring_up(self, index, now_ns + 1, now_ns + 1)
        self.touched(index)
        if self.num_clients < self._num_rows and self.departures.any():     # it may be a departure with a second leg
            return self.events.push(now_ns, kind, kind, self.entries[index].gateway, row)
        (<Replica>self.entries[index].replica).withdraw(row, status, now_ns)
        self.touched(index)
        return 0

    cdef void touched(self, int32_t index) noexcept nogil:
        if self.coupled:
            note_touched(self, <Replica>self.entries[index].replica)

    cdef void _warm(self, int32_t index, int32_t next_index) noexcept nogil:
        cdef const ReplicaEntry* entry = &self.entries[next_index]
        cdef const Lookahead* lookahead
        cdef int32_t i
        prefetch(entry.due)
        prefetch_lines(entry.finish, FINISH_LINES)
        if self.lookaheads != NULL:
            lookahead = &self.lookaheads[next_index]
            for i in range(lookahead.num_posted):
                prefetch(&self.requests[lookahead.posted[i].row])
        prefetch(&self.requests[due_row(<Replica>self.entries[index].replica)])

    cdef int64_t catch_up(self, int64_t until_ns, int64_t most_steps) except -1 nogil:
        cdef int32_t index
        cdef int64_t now_ns = self.wakes.top_time()
        if self._in_halves:
            return self._catch_up_in_halves(until_ns, most_steps)
        while now_ns < until_ns and not self.departures.any() and most_steps > 0:
            index = self.wakes.top_index()
            if self.num_replicas >= MANY:
                self._warm(index, self.wakes.second_index())
            bring_up(self, index, now_ns + 1, NEVER_NS)        # no horizon: an arrival cuts a run that is too long
            self.departures.note_turn(index, now_ns)
            note(self, index, <Replica>self.entries[index].replica)
            prefetch(self.entries[self.wakes.top_index()].due)
            if self.departures.any():
                return now_ns
            now_ns = self.wakes.top_time()
            most_steps -= 1
        return min(now_ns, until_ns)

    cdef int64_t _catch_up_in_halves(self, int64_t until_ns, int64_t most_steps) except -1 nogil:
        cdef int64_t now_ns
        while not self.departures.any() and most_steps > 0:
            now_ns = self._between_ns if self._between.size > 0 else self.wakes.top_time()
            if now_ns >= until_ns:
                return until_ns
            if self.wakes.top_time() == now_ns:     # first all iterations due end; later, replicas that an arrival woke
                self._between_ns = now_ns
                self._end_halves()
            else:
                most_steps -= self._begin_halves()
            if self.departures.any():
                return now_ns
        return min(self._between_ns if self._between.size > 0 else self.wakes.top_time(), until_ns)

    cdef int _end_halves(self) except -1 nogil:
        """End all iterations that are due next."""
        cdef int32_t index
        while self.wakes.top_time() == self._between_ns:
            index = self.wakes.top_index()
            if is_between(<Replica>self.entries[index].replica):
                self.wakes.set(index, NEVER_NS)
                continue
            (<Replica>self.entries[index].replica).end_due()
            self._add_between((<Replica>self.entries[index].replica).first_sibling)
            note_all(self, <Replica>self.entries[index].replica)
        return 0

    cdef int _add_between(self, int32_t index) except -1 nogil:
        """Note that a replica is between two iterations, in order of replicas."""
        cdef int32_t i
        add_row(&self._between, index)
        i = self._between.size - 1
        while i > 0 and self._between.rows[i - 1] > index:
            self._between.rows[i] = self._between.rows[i - 1]
            i -= 1
        self._between.rows[i] = index
        return 0

    cdef int _begin_halves(self) except -1 nogil:
        """Begin the next iterations, in order of replicas, until one lets requests go; return how many did."""
        cdef int32_t index, i = 0
        while i < self._between.size and not self.departures.any():
            index = self._between.rows[i]
            i += 1
            if is_between(<Replica>self.entries[index].replica):
                (<Replica>self.entries[index].replica).advance(self._between_ns + 1, NEVER_NS)
                self.departures.note_turn(index, self._between_ns)
                note(self, index, <Replica>self.entries[index].replica)
        self._between.size -= i
        memmove(self._between.rows, self._between.rows + i, self._between.size * sizeof(int32_t))
        return i

    cdef int advance_all(self, int64_t until_ns) except -1 nogil:
        return self.advance_some(0, self.num_replicas, until_ns)

    cdef int advance_some(self, int32_t first, int32_t last, int64_t until_ns) except -1 nogil:
        cdef int32_t index
        for index in range(first, last):
            bring_up(self, index, until_ns, until_ns)
            self.touched(index)
        return 0
