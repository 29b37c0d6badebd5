"""The path of a request to the replicas of its model: admission, gateway queue, router.

Where a step takes no time and nothing else happens at its instant, it follows at once; otherwise through an event, so
that at one instant all arrivals come before all admissions, and these before all routings.
"""
from libc.stdlib cimport calloc, free, malloc
cimport cython

from simulator.admission.gateway_queue cimport REFUSED
from simulator.core.clock cimport NEVER_NS
from simulator.domain.journey cimport (
    LEG_MOVED, NO_CAUSE, ROLE_DECODE, ROLE_PREFILL, ROLE_WHOLE, ADMISSION as CAUSE_ADMISSION, EXPIRED as CAUSE_EXPIRED,
    NO_REPLICA as CAUSE_NO_REPLICA, QUEUE_FULL as CAUSE_QUEUE_FULL, RECALLED as CAUSE_RECALLED, SHED as CAUSE_SHED)
from simulator.domain.replica_state cimport ReplicaAccount
from simulator.domain.request cimport COMPLETED, REJECTED, TIMED_OUT, WAITING
from simulator.engine.fleet.events cimport ADMIT, DISPATCH, EXPIRE, RECALL, ROUTE
from simulator.routing.door cimport ask

from simulator.errors import BadAnswer


cdef bint lets_in(Admission admission, int32_t row, int64_t now_ns) except -1 nogil:
    """Return whether the admission policy, which answers 0 or 1, admits a request."""
    cdef int answer = admission.admit(row, now_ns)
    if answer != 0 and answer != 1:
        with gil:
            raise BadAnswer(admission, "admit", "0 or 1", answer)
    return answer


cdef inline void add(Gateway gateway, ReplicaAccount* account, int32_t row) noexcept nogil:
    """Add a request to an account."""
    account.in_flight += 1
    account.in_flight_tokens += gateway._fleet.requests[row].prompt_tokens
    if gateway._foretells:
        account.expected_tokens += max(gateway._fleet.demands[row].expected_tokens, 0)


cdef inline void take(Gateway gateway, ReplicaAccount* account, int32_t row) noexcept nogil:
    """Take a request out of an account."""
    account.in_flight -= 1
    account.in_flight_tokens -= gateway._fleet.requests[row].prompt_tokens
    if gateway._foretells:
        account.expected_tokens -= max(gateway._fleet.demands[row].expected_tokens, 0)


cdef inline int32_t book(Gateway gateway, int32_t row, int32_t replica, int8_t role, int64_t now_ns) except -2 nogil:
    """Assign a request to a replica with a LegRole; return its row (a prefill leg has a row of its own)."""
    cdef ReplicaAccount* account = &gateway.view.accounts[replica]
    cdef int32_t client = row
    if role == ROLE_PREFILL:
        row += <int32_t>gateway._fleet.num_clients
    add(gateway, account, row)
    account.dispatched += 1
    gateway.view.mark_in_flight(replica)
    if gateway._fleet.journeys != NULL:
        gateway._fleet.journeys[row].dispatched_ns = now_ns
    gateway.router.sent(client, replica, now_ns)
    if role != ROLE_DECODE:
        note_sent(<Gateway>gateway._first, client, now_ns)
    if gateway._fleet.legs is not None:
        gateway._fleet.legs.sent(row, account.replica, role, now_ns)
    return row


cdef inline int send(Gateway gateway, int32_t row, int32_t replica, int8_t role, int64_t now_ns) except -1 nogil:
    """Dispatch a request with its LegRole."""
    return gateway._fleet.send(
        book(gateway, row, replica, role, now_ns), gateway.view.accounts[replica].replica, now_ns)


cdef inline void* queue_of(Gateway gateway, int32_t row) noexcept nogil:
    """Return the GatewayQueue of the instance of a request."""
    return gateway._queues[gateway._instance_of(row)].queue


cdef inline int note_sent(Gateway first, int32_t row, int64_t now_ns) except -1 nogil:
    """Notify admission and gateway queue that a replica has the request."""
    if first.admission is not None:
        first.admission.sent(row, now_ns)
    if first.queue is not None:
        (<GatewayQueue>queue_of(first, row)).sent(row, now_ns)
    return 0


cdef inline int note_left(Gateway first, int32_t row, int64_t now_ns) except -1 nogil:
    """Notify admission and gateway queue that no replica has the request any more."""
    if first.admission is not None:
        first.admission.left(row, now_ns)
    if first.queue is not None:
        (<GatewayQueue>queue_of(first, row)).left(row, now_ns)
    return 0


cdef inline void note_end(Gateway first, int32_t row) noexcept nogil:
    """Let the queue pass on another request in place of one that ended."""
    if first.queue is not None:
        first._queues[first._instance_of(row)].owed += first.queue.tries_on_departure


@cython.final
cdef class Gateway:
    """One gateway.

    index : its number in the cluster.
    fleet : the replicas and their events.
    view : of its replicas. parts : admission, queues of its instances, router, tracer, see gateway.pxd; and the
        Assignment of requests to instances, None: there is one.
    times_ns : duration of an admission decision and of a routing decision; delay before a request is routed again
        that no replica could take, and how long after its admission that may happen.
    """

    def __init__(self, int32_t index, Fleet fleet, LiveView view, parts, times_ns):
        self.index, self._first = index, <void*>self
        self._fleet = fleet
        self.view = view
        self._places = <int32_t*>malloc(fleet.num_replicas * sizeof(int32_t))
        self._promised = <int32_t*>calloc(view.num_replicas, sizeof(int32_t))
        if self._places == NULL or self._promised == NULL:
            raise MemoryError()
        for i in range(fleet.num_replicas):
            self._places[<int32_t>i] = -1
        self.admission, self.queues, self.router, self._tracer, self._assignment = parts
        self._front_ends = self.router if isinstance(self.router, RankRouter) else None
        self._stand_in_line()
        self._admission_ns, self.routing_ns, self._retry_ns, self._patience_ns = times_ns
        if self._patience_ns > 0 and fleet.journeys == NULL:
            raise ValueError("to route again later, the cluster must keep journeys")
        self.is_blind = not (self.router.reads_state or self.queue is not None or self._tracer is not None
                             or (self.admission is not None and self.admission.reads_state)
                             or self._admission_ns > 0 or self.routing_ns > 0)
        self._foretells = fleet.workload.chunks is None and bool(
            (fleet.workload.demands["expected_tokens"] >= 0).any())
        self._is_direct = (self.admission is None and self.queue is None and self._admission_ns == 0
                           and self.routing_ns == 0 and fleet.journeys == NULL)
        fleet.add_view(view, index)
        self.shift_ns = NEVER_NS
        for i in range(view.num_replicas):
            self._places[view.accounts[<int32_t>i].replica] = <int32_t>i
            self.shift_ns = min(self.shift_ns, fleet.shifts_ns[view.accounts[i].replica])

    def _stand_in_line(self):
        self._num_queues = len(self.queues)
        self.queue = self.queues[0] if self.queues else None
        self._queues = <QueueOfInstance*>calloc(max(self._num_queues, 1), sizeof(QueueOfInstance))
        if self._queues == NULL:
            raise MemoryError()
        for i, queue in enumerate(self.queues):
            self._queues[<int32_t>i].queue = <void*>queue

    def __dealloc__(self):
        free(self._places)
        free(self._promised)
        free(self._queues)

    def change_limits(self, int64_t now_ns):
        """Note that an instance may have its first routable replica now, or its last no more."""
        if self.queue is not None:
            self._change_limit(now_ns)

    @property
    def num_queued(self):
        """Requests that wait in the queues of all instances."""
        return sum([queue.size for queue in self.queues])

    def pair(self, Gateway second, PairingBase pairing, decode_first):
        """Have another gateway serve the decode legs of requests that arrive here.

        decode_first : the decode replica is chosen at once, too, and both decisions take their time.
        """
        if decode_first:
            self.routing_ns, second.routing_ns = self.routing_ns + second.routing_ns, 0
        self._pairing = second._pairing = pairing
        second._first = <void*>self
        if self.queue is not None:
            self.queue.watch_decodes(second.view)
        self.shift_ns = min(self.shift_ns, second.shift_ns)

    def count_promised(self):
        """Count decode legs from the choice of their replica on, if the router does."""
        self.counts_promised = self.router.counts_promised

    def hold_back(self, Stage stage):
        """Have requests wait for a stage behind the queue, before they are routed."""
        self._stage, self._is_direct, self.is_blind = stage, False, False

    def put_in_front(self, Stage stage):
        """Have admitted requests come to a stage first, which returns those that it holds with `return_to_gateway`."""
        self._front_stage, self._is_direct, self.is_blind = stage, False, False

    cdef int arrive(self, int32_t row, int64_t now_ns) except -1 nogil:
        self._fleet.requests[row].status = WAITING
        if self._is_direct and self._fleet.is_alone(now_ns):
            return self.route(row, now_ns)
        if self.admission is None and self.queue is None and self._admission_ns == 0:
            if self._fleet.journeys != NULL:
                self._fleet.journeys[row].admitted_ns = now_ns
            return self._let_in(row, now_ns)
        if self._admission_ns == 0 and self._fleet.is_alone(now_ns):
            return self.admit(row, now_ns)
        return self._fleet.events.push(now_ns + self._admission_ns, ADMIT, ADMIT, self.index, row)

    cdef int32_t place(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t replica
        cdef int8_t cause = CAUSE_ADMISSION
        if self.admission is None or lets_in(self.admission, row, now_ns):
            replica = ask(self.router, row, now_ns)
            if replica >= 0:
                if self._fleet.journeys != NULL:
                    self._fleet.journeys[row].admitted_ns = self._fleet.journeys[row].dispatched_ns = now_ns
                self.router.sent(row, replica, now_ns)
                return self.view.accounts[replica].replica
            cause = CAUSE_NO_REPLICA
        self._fleet.refuse(row, REJECTED, cause, now_ns)
        return -1

    cdef int admit(self, int32_t row, int64_t now_ns) except -1 nogil:
        if self._fleet.requests[row].status >= COMPLETED:       # its client gave up meanwhile
            return 0
        if self.admission is not None and not lets_in(self.admission, row, now_ns):
            return self._fleet.refuse(row, REJECTED, CAUSE_ADMISSION, now_ns)
        if self._fleet.journeys != NULL:
            self._fleet.journeys[row].admitted_ns = now_ns
        return self._let_in(row, now_ns)

    cdef int _let_in(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Hand an admitted request to the first of front stage, queue, stage and router that is there."""
        if self._front_stage is not None and self._front_stage.holds(row, now_ns):
            return 0
        return self._pass_on(row, now_ns) if self.queue is None else self._offer(row, now_ns)

    cdef int return_to_gateway(self, int32_t row, int64_t now_ns) except -1 nogil:
        if self._first != <void*>self:
            return (<Gateway>self._first).return_to_gateway(row, now_ns)
        self._fleet.requests[row].status = WAITING
        self._fleet.requests[row].replica = -1
        return self._pass_on(row, now_ns) if self.queue is None else self._offer(row, now_ns)

    cdef int _offer(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Put a request into the gateway queue."""
        cdef int32_t instance = self._instance_of(row)
        cdef void* queue = self._queues[instance].queue
        if (<GatewayQueue>queue).offer(row, now_ns) == REFUSED:
            return self._fleet.refuse(row, REJECTED, CAUSE_QUEUE_FULL, now_ns)
        if (<GatewayQueue>queue).evicted >= 0:
            self._fleet.refuse((<GatewayQueue>queue).evicted, REJECTED, CAUSE_SHED, now_ns)
        if self.queue.ttl_ns > 0:
            self._expire_at(instance, now_ns + self.queue.ttl_ns)
        if self.queue.no_replica_ttl_ns != self.queue.ttl_ns:
            self._expire_at(instance, now_ns + self.queue.no_replica_ttl_ns)
        return self._attempt(instance, now_ns)

    cdef int32_t _instance_of(self, int32_t row) noexcept nogil:
        """Return the instance of the gateway that a request went to."""
        return 0 if self._assignment is None else self._assignment.of(row)

    cdef int _expire_at(self, int32_t instance, int64_t instant_ns) except -1 nogil:
        """Look for requests that have waited for too long at the next search from an instant on."""
        return self._fleet.events.push(self.queue.scan_after(instant_ns), EXPIRE, EXPIRE, self.index, instance)

    cdef int _change_limit(self, int64_t now_ns) except -1 nogil:
        """Look for such requests: the first replica has become routable, or the last is so no more."""
        cdef int32_t instance
        for instance in range(self._num_queues if self.queue.no_replica_ttl_ns != self.queue.ttl_ns else 0):
            self._expire_at(instance, now_ns)
        return 0

    cdef int _pass_on(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Hand a request to the stage before the router, if there is one, or to the router."""
        if self._stage is not None and self._stage.holds(row, now_ns):
            return 0
        return self.go_on(row, now_ns)

    cdef int go_on(self, int32_t row, int64_t now_ns) except -1 nogil:
        if self.routing_ns == 0 and self._fleet.is_alone(now_ns):
            return self.route(row, now_ns)
        return self._fleet.events.push(now_ns + self.routing_ns, ROUTE, ROUTE, self.index, row)

    cdef int _attempt(self, int32_t instance, int64_t now_ns) except -1 nogil:
        """Pass on the first request of the gateway queue, if it may go."""
        cdef void* queue = self._queues[instance].queue
        cdef int32_t row, recalled
        self._keep_ticking(instance, now_ns)
        if (<GatewayQueue>queue).size == 0:
            return 0
        row = (<GatewayQueue>queue).next(now_ns)
        recalled = (<GatewayQueue>queue).recalled
        while recalled >= 0:
            self._fleet.events.push(now_ns, RECALL, RECALL, self.index, recalled)
            recalled = (<GatewayQueue>queue).recall_more()
        return self._pass_on(row, now_ns) if row >= 0 else 0

    cdef int _keep_ticking(self, int32_t instance, int64_t now_ns) except -1 nogil:
        cdef QueueOfInstance* line = &self._queues[instance]
        if line.ticks or self.queue.tick_ns == 0 or (<GatewayQueue>line.queue).size == 0:
            return 0
        line.ticks = True
        return self._fleet.push_tick(now_ns + self.queue.tick_ns, DISPATCH, self.index | <int64_t>instance << 32)

    cdef int tick(self, int32_t instance, int64_t now_ns) except -1 nogil:
        self._attempt(instance, now_ns)
        self._queues[instance].ticks = False
        return self._keep_ticking(instance, now_ns)

    cdef int route(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t replica
        if self._fleet.requests[row].status >= COMPLETED:
            return 0
        if self._pairing is not None:
            return self._pairing.route(row, now_ns)
        replica = self.choose(row, now_ns)
        return send(self, row, replica, ROLE_WHOLE, now_ns) if replica >= 0 else self.turn_away(row, now_ns)

    cdef int32_t choose(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t replica = ask(self.router, row, now_ns)
        if self._tracer is not None:
            self._tracer.decided(self.router, row, replica, now_ns)
        return replica

    cdef int dispatch(self, int32_t row, int32_t replica, int8_t role, int64_t now_ns) except -1 nogil:
        return send(self, row, replica, role, now_ns)

    cdef int announce(self, int32_t row, int32_t replica, int8_t role, int64_t now_ns) except -1 nogil:
        row = book(self, row, replica, role, now_ns)
        self._fleet.requests[row].replica = self.view.accounts[replica].replica
        self._fleet.requests[row].status = WAITING
        return 0

    cdef int put(self, int32_t row, int32_t replica, int8_t role, int64_t now_ns) except -1 nogil:
        self.announce(row, replica, role, now_ns)
        return self._fleet.enqueue(row, now_ns)

    cdef int promise(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef ReplicaAccount* account = &self.view.accounts[replica]
        if self._front_ends is not None:
            return self._front_ends.promise(row, replica, now_ns)
        add(self, account, row)
        account.dispatched += 1
        self._promised[replica] += 1
        self.view.mark_in_flight(replica)
        return self.router.sent(row, replica, now_ns)

    cdef int redeem(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef ReplicaAccount* account = &self.view.accounts[replica]
        if self._front_ends is not None:
            return self._front_ends.redeem(row, replica, now_ns)
        take(self, account, row)
        account.dispatched -= 1
        self._promised[replica] -= 1
        self.view.mark_in_flight(replica)
        return self.router.left(row, replica, now_ns)

    cdef int turn_away(self, int32_t row, int64_t now_ns) except -1 nogil:
        if (self._patience_ns > 0
                and now_ns + self._retry_ns <= self._fleet.journeys[row].admitted_ns + self._patience_ns):
            return self._fleet.events.push(now_ns + self._retry_ns, ROUTE, ROUTE, self.index, row)
        return self._fleet.refuse(row, REJECTED, CAUSE_NO_REPLICA, now_ns)

    cdef int left(self, int32_t row, int64_t now_ns) except -1 nogil:
        self._settle_account(row, row, now_ns)
        return note_left(<Gateway>self._first, row, now_ns)

    cdef int leg_left(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil:
        if self._fleet.legs is not None:
            self._fleet.legs.ended(row, how, now_ns)
        return self._settle_account(row, row - <int32_t>self._fleet.num_clients, now_ns)

    cdef int gone(self, int32_t row, int64_t now_ns) except -1 nogil:
        note_end(<Gateway>self._first, row)
        return note_left(<Gateway>self._first, row, now_ns)

    cdef int returned(self, int32_t row, int64_t now_ns) except -1 nogil:
        return note_left(<Gateway>self._first, row, now_ns)

    cdef int _settle_account(self, int32_t row, int32_t client, int64_t now_ns) except -1 nogil:
        cdef int32_t replica = self._places[self._fleet.requests[row].replica]
        take(self, &self.view.accounts[replica], row)
        self.view.mark_in_flight(replica)
        return self.router.left(client, replica, now_ns)

    cdef int moved(self, int32_t row, int32_t replica, int64_t since_ns, int64_t now_ns) except -1 nogil:
        cdef int32_t before = self._places[self._fleet.requests[row].replica], after = self._places[replica]
        take(self, &self.view.accounts[before], row)
        add(self, &self.view.accounts[after], row)
        self.view.mark_in_flight(before)
        self.view.mark_in_flight(after)
        self._fleet.requests[row].replica = replica
        self._fleet.watch_deadline(row, replica, now_ns)
        if self._fleet.legs is not None:
            self._fleet.legs.ended(row, LEG_MOVED, now_ns)
            self._fleet.legs.sent(row, replica, ROLE_WHOLE, since_ns)
        return self.router.moved(row, before, after, now_ns)

    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil:
        note_end(<Gateway>self._first, row)
        if self._fleet.legs is not None:
            self._fleet.legs.ended(row, how, now_ns)
        return self.left(row, now_ns)

    cdef int settle(self, int64_t now_ns) except -1 nogil:
        cdef int32_t instance
        for instance in range(self._num_queues):
            while self._queues[instance].owed > 0:
                self._queues[instance].owed -= 1
                self._attempt(instance, now_ns)
        return 0 if self._stage is None else self._stage.settle(now_ns)

    cdef int recall(self, int32_t row, int64_t now_ns) except -1 nogil:
        if self._fleet.requests[row].status >= COMPLETED or self._fleet.requests[row].replica < 0:
            return 0                                        # its replica failed at this instant: it is back already
        if self.queue.recalls_queued_only and self._fleet.requests[row].enqueued_ns < 0:
            return 0
        if self._fleet.journeys != NULL:
            self._fleet.journeys[row].cause = CAUSE_RECALLED
        return self._fleet.withdraw(row, REJECTED, now_ns)

    cdef int expire(self, int32_t instance, int64_t now_ns) except -1 nogil:
        cdef void* queue = self._queues[instance].queue
        cdef bint has_replicas = (<GatewayQueue>queue).has_replicas()
        cdef int32_t row = (<GatewayQueue>queue).expire(has_replicas, now_ns)
        while row >= 0:
            self._fleet.refuse(row, REJECTED, CAUSE_EXPIRED if has_replicas else CAUSE_NO_REPLICA, now_ns)
            row = (<GatewayQueue>queue).expire(has_replicas, now_ns)
        return 0

    cdef int give_up(self, int32_t row, int64_t now_ns) except -1 nogil:
        if self.queue is not None:
            (<GatewayQueue>queue_of(self, row)).remove(row)
        if self._stage is not None:
            self._stage.forget(row, now_ns)
        return self._fleet.refuse(row, TIMED_OUT, NO_CAUSE, now_ns)

    cdef bint open(self, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef ReplicaAccount* account = &self.view.accounts[replica]
        cdef int32_t instance
        if account.is_routable:
            return False
        account.is_routable, account.up_since_ns = True, now_ns
        self.view.mark(replica)
        if self.queue is not None:
            for instance in range(self._num_queues):
                self._queues[instance].owed += self.queue.tries_on_departure
            self._change_limit(now_ns)
        self.router.opened(replica, now_ns)
        return True

    cdef int close(self, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef ReplicaAccount* account = &self.view.accounts[replica]
        if not account.is_routable:
            return 0
        account.is_routable = False
        self.view.mark(replica)
        if self.queue is not None:
            self._change_limit(now_ns)
        return self.router.closed(replica, now_ns)
