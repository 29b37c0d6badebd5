"""The event loop: arrivals, events and replicas on one clock.

Between two arrivals at a replica nothing outside can affect it, so it is advanced only when something reaches
it. A router that reads the state of replicas couples them: then a heap of wake times gives the replicas that act before
each event, and they act in order of time.
"""
from libc.stdint cimport int8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.errors cimport out_of_memory
from simulator.core.event_queue cimport Event
from simulator.core.memory cimport prefetch
from simulator.domain.request cimport COMPLETED, REJECTED, RUNNING, TIMED_OUT, WAITING
from simulator.domain.tables cimport ReplicaRow
from simulator.domain.journey cimport LEG_COMPLETED, LEG_ENDED, NO_REPLICA
from simulator.engine.fleet.events cimport (
    ADMIT, ARRIVAL, DISPATCH, ENCODE, ENCODERS, ENQUEUE, EXPIRE, FRONT_END, LEASE, RECALL, ROUTE, SAMPLE, TIME_OUT,
    TRANSFER)
from simulator.engine.fleet.fleet cimport TICK
from simulator.engine.operations.base cimport Operation
from simulator.engine.replica.replica cimport Replica
from simulator.kv.chunk_store cimport ChunkStore

import numpy as np

from simulator.domain import records
from simulator.domain.columns import REQUESTS, folded
from simulator.domain.run import Run, added_up
from simulator.engine.diagnosis import describe_standstill, diagnose, diagnose_gateways, pool_cuts
from simulator.engine.lanes import lanes_for, why_no_lanes
from simulator.engine.pool_latency import provenance_of, warnings_of
from simulator.engine.unknown_names import diagnose_names

cdef enum:
    AHEAD = 8                           # requests prefetched ahead of their arrival
    POLL_ITERATIONS = 1 << 16           # a few milliseconds of work
    LOOK_EVENTS = 1 << 14               # a few milliseconds of work
    MOST_STILL = 1 << 20                # events at one instant, and MOST_OF_EACH for each request and replica besides,
    MOST_OF_EACH = 64                   # without progress: a request on its way has five
    SLICE_ARRIVALS = 1024               # per replica: arrivals served at once
    CHUNKED_ARRIVALS = 1 << 20          # at most, where rows of requests come and go
    HELD_BYTES = 1 << 23                # of rows of iterations, before they are merged and passed on
    FIRST_SLICE_NS = 1000000000         # of simulated time while draining; then fitted to POLL_ITERATIONS


@cython.final
cdef class Cluster:
    """Replicas on one clock, their gateways, and the arriving requests.

    fleet : the replicas.
    gateways : list of Gateway.
    gateway_of : {code of a model label, -1 for none: index of its gateway}; other requests are refused.
    operations : list of Operation.
    source : of the requests.
    shared : build.Shared, the objects shared by all parts of the cluster.
    """

    def __init__(self, Fleet fleet, gateways, gateway_of, operations, Source source, shared):
        cdef Request[::1] requests = shared.workload.requests
        cdef const Demand[::1] demands = shared.workload.demands
        cdef Gateway gateway
        cdef Operation operation
        self.fleet, self.source, self.workload = fleet, source, shared.workload
        self.gateways, self.operations = list(gateways), list(operations)
        self._num_gateways = len(self.gateways)
        num_models = len(shared.workload.labels.get("model", ()))
        self._gateways = <void**>malloc(len(self.gateways) * sizeof(void*))
        self._gateway_of = <int32_t*>malloc((num_models + 1) * sizeof(int32_t))
        self._operations = <void**>malloc((len(self.operations) + 1) * sizeof(void*))
        if self._gateways == NULL or self._gateway_of == NULL or self._operations == NULL:
            raise MemoryError()
        for i, gateway in enumerate(self.gateways):
            self._gateways[i] = <void*>gateway
        self._names_models = num_models > 0
        for code in range(-1, num_models):
            self._gateway_of[<int32_t>code + 1] = gateway_of.get(code, -1)
        self._num_operations = len(self.operations)
        memset(self._handlers, 0, sizeof(self._handlers))
        for i, operation in enumerate(self.operations):
            self._operations[<int32_t>i] = <void*>operation
            if operation.continues:
                self._continuing = <void*>operation
            for kind in operation.kinds:
                self._handlers[<int32_t>kind] = <void*>operation
        self._recorder, self._journeys, self._monitor = shared.recorder, shared.journeys, shared.monitor
        self._num_requests = len(requests)
        if self._num_requests:
            self._requests, self._demands = &requests[0], &demands[0]
        self._horizon_ns = NEVER_NS - 1 if shared.horizon_ns is None else shared.horizon_ns
        self._plan, self._observer, self._tier_use = shared.plan, shared.observer, shared.tier_use
        self._stores, self._encoded_tokens = shared.stores, shared.encoded_tokens
        self._give_up_ns, self._give_up_failing_ns = self._plan.give_up_ns, self._plan.give_up_failing_ns
        self._first, self._last = self._plan.serves or (0, fleet.num_replicas)
        self._next_poll = self._poll_iterations = POLL_ITERATIONS
        self._looks_in = LOOK_EVENTS
        self._most_still = MOST_STILL + MOST_OF_EACH * (self._num_requests + fleet.num_replicas)

    def __dealloc__(self):
        free(self._gateways)
        free(self._gateway_of)
        free(self._operations)
        free(self._following)
        free(self._ends)

    @property
    def replicas(self):
        """The replicas, in order of their index."""
        return self.fleet.replicas

    def run(self):
        """Simulate until nothing is left to do, the horizon, or a stop; return the `Run`.

        May be called once. Stopped by the monitor or by a livelock, the run is not complete.
        """
        cdef bint alone = self._serves_alone()
        self.begin()
        if alone and self._delays_queue():
            self._delayed = Delayed(self.fleet)
        if alone and self._plan.serves is None:
            self._lanes = lanes_for(self.replicas, self.workload, self._recorder, self._plan, self._observer)
        with nogil:
            if alone:
                self._run_in_slices()
            self._loop()
            self._end_transfers()
            if not self.fleet.coupled and not self._stopped:
                self._drain()
            if self._stopped or self.fleet.lookaheads != NULL:   # some may lag behind
                self._advance_all(self.clock_ns if self._stopped else self._horizon_ns + 1)
        return self._conclude()

    def begin(self):
        """Begin a run; `advance` moves its time on. `run` does both."""
        cdef Operation operation
        self.source.start()
        for operation in self.operations:
            operation.start()

    def advance(self, int64_t until_ns):
        """Simulate all that happens up to an instant, that instant included; return whether the run can go on.

        For a coupled cluster without fast-forward, so that tokens are recorded when they are due.
        """
        self._horizon_ns = until_ns
        with nogil:
            self._loop()
        return not self._stopped

    def next_ns(self):
        """Return when something known happens next; None: nothing does before a request arrives."""
        cdef int64_t next_ns = min(self.fleet.events.next_time(), self.fleet.wakes.top_time())
        next_ns = min(next_ns, self.source.next_ns)
        return None if next_ns >= NEVER_NS - 1 else next_ns

    def cancel(self, int32_t row, int64_t at_ns):
        """Let the client of a request give up at an instant to come; return its deadline, as in a Demand.

        For pools with equal `HostParameters.shift_ns`, and a workload that was built with deadlines.
        """
        cdef int32_t gateway = self._gateway_for(row)
        cdef int64_t deadline_ns = at_ns + (<Gateway>self._gateways[gateway]).shift_ns
        (<Demand*>self._demands)[row].deadline_ns = deadline_ns
        if row < self._num_requests - self.source.num_left:         # else its arrival will note the deadline
            self.fleet.events.push(at_ns, TIME_OUT, TIME_OUT, gateway, row)
        return deadline_ns

    def _serves_alone(self):
        """Return whether replicas are affected by arrivals only."""
        return self.source.is_fixed and not (
            self.fleet.coupled or self.fleet.has_deadlines or self.fleet.front_ends)

    def why_whole(self):
        """Return why the cluster cannot be cut into parts that are simulated apart; None: it can."""
        if self.fleet.num_replicas < 2:
            return "it has one replica"
        if not self._serves_alone() or self.operations or self._journeys is not None or self._stores:
            return "its replicas see each other, or something looks at them while they run"
        return why_no_lanes(self._plan)

    def _delays_queue(self):
        return any(
            self.fleet.entries[i].queue_base_ns > 0 or self.fleet.entries[i].queue_token_ns > 0
            for i in range(self.fleet.num_replicas))

    def stop(self):
        """Return the incomplete `Run` after an exception ended `run`."""
        self._stopped = True
        return self._conclude()

    def _conclude(self):
        cdef Replica replica
        for replica in self.replicas:
            replica.settle(self.clock_ns if self._stopped else self._horizon_ns + 1)
        if self._horizon_ns < NEVER_NS - 1:
            self._forget_behind_horizon()
        if self._lanes is not None:
            self._lanes.close()
        self._recorder.close()
        served, self.workload = self.workload, self._rest()
        self.workload.pool_cuts = pool_cuts(self.replicas, self.workload)
        is_cut = self._stopped or self._horizon_ns < NEVER_NS - 1 and self.fleet.events.size > self.fleet.num_ticks
        diagnosis = diagnose(self.replicas, served, is_cut)
        if self._gave_up_ns > 0 or self._waits_in_vain():
            diagnosis += diagnose_gateways(self.workload, self._gave_up_ns, self._gave_up_quietly)
        diagnosis += diagnose_names(self.workload, self._plan) + warnings_of(self._plan.pools)
        diagnosis += self.workload.notes
        if self._stands_still:
            diagnosis.append(describe_standstill(
                self._num_still, self.clock_ns, self.fleet.events.top().kind if self.fleet.events.size > 0 else -1))
        cannot_go_on = any(replica.rank.is_livelocked or replica.is_out_of_time or replica.stands_still
                           for replica in self.replicas)
        run = Run(workload=self.workload, complete=not (self._stopped or cannot_go_on), clock_ns=self._end_of_time(),
                  horizon_ns=None if self._horizon_ns >= NEVER_NS - 1 else self._horizon_ns,
                  stands_still=self._stands_still or any(replica.stands_still for replica in self.replicas),
                  replicas=self._replica_table(), itl_ns=self._recorder.gaps, journeys=self._journeys,
                  latency=provenance_of(self._plan.pools), diagnosis=diagnosis,
                  legs=None if self.fleet.legs is None else self.fleet.legs.table(),
                  counts=added_up(replica.rank.counts() for replica in self.replicas),
                  executions=self._recorder.executions and self._recorder.executions.table,
                  columns=self._columns(), limits=self._limits(), parts=self._plan.parts)
        for operation in self.operations:
            operation.report(run)
        for part in run.parts:
            part.report(run, self)
        described = REQUESTS | {name: column for part in run.parts for name, column in part.columns.items()}
        run.columns = {name: folded(values, len(self.workload), described[name].merge)
                       for name, values in run.columns.items()}
        return run

    def _rest(self):
        """Return the workload with the rows that have not been given up."""
        chunks = self.workload.chunks
        return self.workload if chunks is None else chunks.rest(self.workload, self._recorder.gaps)

    def _forget_behind_horizon(self):
        """Take back output that clients would see only after the horizon: the host takes time after an iteration."""
        cdef Replica replica
        requests = self.workload.requests if self.workload.chunks is None else self.workload.chunks.held
        requests["first_token_ns"][requests["first_token_ns"] > self._horizon_ns] = -1
        late = np.flatnonzero((requests["status"] == COMPLETED) & (requests["completed_ns"] > self._horizon_ns))
        requests["status"][late], requests["completed_ns"][late] = RUNNING, -1
        for index, count in zip(*np.unique(requests["replica"][late], return_counts=True), strict=True):
            replica = self.replicas[index]
            replica.rank.row.completed -= count

    # ---- the loop

    cdef int _loop(self) except -1 nogil:
        cdef int64_t arrival_ns, event_ns, now_ns, reached_ns, num_finished
        cdef const Event* top
        cdef bint is_event, is_caught_up
        while not self._stopped:
            self._looks_in -= 1
            if self._looks_in == 0:
                self._look(self.clock_ns)
                continue
            self.fleet.next_arrival_ns = arrival_ns = self.source.next_ns
            top = self.fleet.events.top()
            event_ns = top.time_ns if top != NULL else NEVER_NS
            now_ns = min(min(arrival_ns, event_ns), self._horizon_ns + 1)
            if self.fleet.coupled:
                reached_ns = self.fleet.catch_up(now_ns, POLL_ITERATIONS)
                if self._recorder.iterations >= self._next_poll:
                    self._poll(reached_ns)
                if self.fleet.departures.any():
                    self._hear_of_departures(reached_ns)
                    continue
                if reached_ns < now_ns:                 # many steps have passed
                    self._look(reached_ns)
                    continue
            if now_ns > self._horizon_ns or now_ns == NEVER_NS:
                break
            is_event = event_ns < arrival_ns or (event_ns == arrival_ns and top.kind < ARRIVAL)
            if is_event and self.fleet.num_ticks > 0 and self._is_over(now_ns):
                break
            self.clock_ns = now_ns
            num_finished = self._recorder.finished
            is_caught_up = not is_event or top.kind != TIME_OUT      # else earlier ends are seen only then
            self._pop() if is_event else self._arrive(now_ns)
            if self._recorder.finished > num_finished and is_caught_up:
                self._last_event_ns = now_ns
            if self.fleet.departures.any():
                self._hear_of_departures(now_ns)
            if self._recorder.iterations >= self._next_poll:
                self._poll(now_ns)
        return 0

    cdef int _end_transfers(self) except -1 nogil:
        """Let transfers, encodings and leases end in a run that is over, as they do if no event repeats."""
        cdef int32_t kind
        while (not self._stopped and self._horizon_ns == NEVER_NS - 1 and self.fleet.events.size > 0
               and self._recorder.finished == self._num_requests):
            kind = self.fleet.events.top().kind
            if kind == TRANSFER or kind == ENCODE or kind == ENCODERS or kind == LEASE:
                self._pop()
            else:
                self.fleet.events.pop()
        return 0

    cdef int _look(self, int64_t now_ns) except -1 nogil:
        cdef int64_t marks[4]
        cdef bint has_moved = False
        cdef int32_t i
        marks[0], marks[1], marks[2] = now_ns, self.source.num_left, self._recorder.finished
        marks[3] = self._recorder.iterations
        for i in range(4):
            has_moved = has_moved or marks[i] != self._marks[i]
            self._marks[i] = marks[i]
        self._num_still = 0 if has_moved else self._num_still + LOOK_EVENTS
        self._looks_in = LOOK_EVENTS
        if self._num_still > self._most_still:
            self._stands_still = self._stopped = True
            return 0
        return self._poll(now_ns)

    cdef int _hear_of_departures(self, int64_t now_ns) except -1 nogil:
        cdef int32_t row, i
        cdef int8_t how
        cdef int64_t num_finished
        self.clock_ns = max(self.clock_ns, now_ns)
        self._last_event_ns = max(self._last_event_ns, now_ns)
        while self.fleet.departures.any():      # again: a request passed on now may be refused at once
            while self.fleet.departures.any():
                row = self.fleet.departures.take()
                if row < 0:                     # its first token: only stages of gateways heed it, when they settle
                    continue
                if self._continuing != NULL and (
                        row >= self._num_requests or self._requests[row].status < COMPLETED):
                    (<Operation>self._continuing).noticed(row, now_ns)
                    continue
                how = LEG_COMPLETED if self._requests[row].status == COMPLETED else LEG_ENDED
                i = self._requests[row].replica
                if i >= 0:
                    (<Gateway>self._gateways[self.fleet.gateway_of(row)]).ended(row, how, now_ns)
                num_finished = self._recorder.finished
                for i in range(self._num_operations):
                    (<Operation>self._operations[i]).ended(row, how, now_ns)
                if not self.source.is_fixed and self._recorder.finished == num_finished:    # else it is sent again
                    self.source.ended(row, how, now_ns)
            for i in range(self._num_gateways):
                (<Gateway>self._gateways[i]).settle(now_ns)
        return 0

    cdef bint _is_over(self, int64_t now_ns) noexcept nogil:
        """Return whether nothing is left that matters.

        After the last request and iteration: without a horizon always, as repairs and starts of replicas could go on
        for ever; else when only ticks are left. Before: when only samples are left; or when for very long ticks, or
        failures and repairs, have let no request pass.
        """
        cdef bint is_done = self._recorder.finished == self._num_requests, is_quiet = self.fleet.is_quiet()
        if self.fleet.next_arrival_ns < NEVER_NS or self.fleet.wakes.top_time() < NEVER_NS:
            if self.fleet.next_arrival_ns < NEVER_NS or self.fleet.wakes.top_time() > now_ns:
                self._idle_since_ns = self._quiet_since_ns = now_ns     # not by a repaired replica that only looks
            return False
        if is_done:
            return is_quiet or self._horizon_ns == NEVER_NS - 1
        if self._idle_since_ns < self._last_event_ns:
            self._idle_since_ns = now_ns
        if not is_quiet:
            return self._gives_up(now_ns - self._idle_since_ns, self._give_up_failing_ns, False)
        if self.fleet.events.size == 1 and self.fleet.events.top().kind == SAMPLE:
            return True                                 # samples do not keep a run going
        if self._quiet_since_ns < self._last_event_ns:
            self._quiet_since_ns = now_ns
        return self._gives_up(now_ns - self._quiet_since_ns, self._give_up_ns, True)

    cdef bint _gives_up(self, int64_t waited_ns, int64_t most_ns, bint is_quiet) noexcept nogil:
        self._gave_up_ns, self._gave_up_quietly = most_ns if waited_ns > most_ns else 0, is_quiet
        return self._gave_up_ns > 0

    cdef int _pop(self) except -1 nogil:
        cdef Event event = self.fleet.events.pop()
        cdef int32_t row = <int32_t>event.payload
        self.fleet.num_ticks -= event.replica == TICK
        if self._handlers[event.kind] != NULL:
            return (<Operation>self._handlers[event.kind]).handle(&event)
        if event.kind == ENQUEUE:
            return self.fleet.enqueue(row, event.time_ns)
        if event.kind == FRONT_END:
            return self.fleet.leave_front_end(event.replica, event.time_ns)
        if event.kind == TIME_OUT:
            return self._time_out(row, event.time_ns)
        if event.kind == ADMIT:
            return (<Gateway>self._gateways[event.replica]).admit(row, event.time_ns)
        if event.kind == ROUTE:
            return (<Gateway>self._gateways[event.replica]).route(row, event.time_ns)
        if event.kind == RECALL:
            return (<Gateway>self._gateways[event.replica]).recall(row, event.time_ns)
        if event.kind == EXPIRE:
            return (<Gateway>self._gateways[event.replica]).expire(row, event.time_ns)
        if event.kind == DISPATCH:
            return (<Gateway>self._gateways[row]).tick(<int32_t>(event.payload >> 32), event.time_ns)
        return 0

    cdef int _run_in_slices(self) except -1 nogil:
        """Serve all arrivals, many per replica before the next replica is touched.

        The order in which uncoupled replicas are simulated changes no result, but it changes cache use: with
        512 replicas and block tables this takes an eighth of the time of turns at every arrival.
        """
        cdef int64_t most = SLICE_ARRIVALS * <int64_t>self.fleet.num_replicas, held_bytes = 0, grown_bytes
        cdef int64_t window
        with gil:
            if self.workload.chunks is not None:
                most = min(most, CHUNKED_ARRIVALS)
        window = self.fleet.num_replicas if self._recorder.wants_iterations else most
        self._following = <int32_t*>malloc(min(most, self._num_requests + 1) * sizeof(int32_t))
        self._ends = <int32_t*>malloc(2 * self.fleet.num_replicas * sizeof(int32_t))
        if self._following == NULL or self._ends == NULL:
            return out_of_memory()
        while not self._stopped:
            if self._serve_slice(window) == 0:
                break
            grown_bytes = self._held_bytes() - held_bytes
            if grown_bytes > HELD_BYTES:                # as many arrivals as fill the rows to hold
                window = max(window // 2, 1)
            elif grown_bytes < HELD_BYTES // 4:
                window = min(2 * window, most)
            if self._recorder.iterations >= self._next_poll:
                self._poll(self.clock_ns)
            held_bytes = self._held_bytes()
        return 0 if self._delayed is None else self._serve_delayed()

    cdef int _serve_delayed(self) except -1 nogil:
        """After the last arrival: serve the requests that are on their way, in slices of time."""
        cdef int64_t end_ns = self._horizon_ns + 1, slice_ns = FIRST_SLICE_NS, before
        cdef int64_t first_ns = self._delayed.next_ns(self._first, self._last)
        while not self._stopped and first_ns < end_ns:
            before = self._recorder.iterations
            self.clock_ns = max(self.clock_ns, min(first_ns, end_ns - slice_ns) + slice_ns)
            if self._lanes is None:
                self._delayed.deliver(self._first, self._last, min(self.clock_ns, end_ns))
            else:
                with gil:
                    self._lanes.serve(self._deliver_lane, min(self.clock_ns, end_ns))
            slice_ns = self._fitted(slice_ns, self._recorder.iterations - before)
            if self._recorder.iterations >= self._next_poll:
                self._poll(min(self.clock_ns, end_ns))
            first_ns = self._delayed.next_ns(self._first, self._last)
        self._last_event_ns = max(self._last_event_ns, self._delayed.left_ns())
        return self._delayed.leave_to_events()

    cdef int64_t _fitted(self, int64_t slice_ns, int64_t iterations) noexcept nogil:
        """Return the length of the next slice of time, after one with so many iterations."""
        if iterations < POLL_ITERATIONS // 4:
            return min(2 * slice_ns, NEVER_NS // 4)
        return max(slice_ns // 2, 1) if iterations > POLL_ITERATIONS else slice_ns

    cdef int64_t _serve_slice(self, int64_t window) except -1 nogil:
        """Serve up to `window` arrivals; return their number."""
        cdef int32_t* following = self._following
        cdef int32_t* first = self._ends
        cdef int32_t* last = self._ends + self.fleet.num_replicas
        cdef int64_t begin = self._num_requests - self.source.num_left, count = 0
        cdef int32_t row, index, gateway
        for index in range(self.fleet.num_replicas):
            first[index] = -1
        while count < window and self.source.next_ns <= self._horizon_ns:
            row = self.source.take()
            self.clock_ns = self._last_event_ns = self._requests[row].arrival_ns
            count += 1
            gateway = self._gateway_for(row)
            if gateway < 0:
                self.fleet.refuse(row, REJECTED, NO_REPLICA, self._requests[row].arrival_ns)
                continue
            index = (<Gateway>self._gateways[gateway]).place(row, self._requests[row].arrival_ns)
            if index < 0:
                continue
            self._requests[row].replica = index
            self._requests[row].status = WAITING
            if first[index] < 0:
                first[index] = row
            else:
                following[last[index] - begin] = row
            following[row - begin] = -1
            last[index] = row
        if self._lanes is None:
            self._serve_some(self._first, self._last, begin)
        else:
            with gil:
                self._lanes.serve(self._serve_lane, begin)
        return count

    cdef int _serve_some(self, int32_t first, int32_t last, int64_t begin) except -1 nogil:
        """Let replicas take their requests of the slice, which begins at row `begin`."""
        cdef int32_t index, row
        if self._delayed is not None:
            return self._send_some(first, last, begin)
        for index in range(first, last):
            row = self._ends[index]
            while row >= 0:
                self.fleet.enqueue(row, self._requests[row].arrival_ns)
                row = self._following[row - begin]
        return 0

    cdef int _send_some(self, int32_t first, int32_t last, int64_t begin) except -1 nogil:
        """As _serve_some, where requests reach the queues of replicas later than they arrive."""
        cdef int32_t index, row
        for index in range(first, last):
            row = self._ends[index]
            while row >= 0:
                self._delayed.add(row, index, self._requests[row].arrival_ns)
                row = self._following[row - begin]
        return self._delayed.deliver(first, last, self.clock_ns)

    cdef int _advance_all(self, int64_t until_ns) except -1 nogil:
        if self._lanes is None:
            return self.fleet.advance_all(until_ns)
        with gil:
            self._lanes.serve(self._advance_lane, until_ns)
        return 0

    def _serve_lane(self, int32_t first, int32_t last, int64_t begin):
        with nogil:
            self._serve_some(first, last, begin)

    def _deliver_lane(self, int32_t first, int32_t last, int64_t until_ns):
        with nogil:
            self._delayed.deliver(first, last, until_ns)

    def _advance_lane(self, int32_t first, int32_t last, int64_t until_ns):
        with nogil:
            self.fleet.advance_some(first, last, until_ns)

    cdef int _arrive(self, int64_t now_ns) except -1 nogil:
        cdef int32_t row = self.source.take()
        cdef int32_t gateway = self._gateway_for(row)
        prefetch(&self._requests[row + 1 + AHEAD])
        self.fleet.next_arrival_ns = self.source.next_ns
        self._last_event_ns = now_ns
        if gateway < 0:
            return self.fleet.refuse(row, REJECTED, NO_REPLICA, now_ns)
        if self.fleet.has_deadlines and self._demands[row].deadline_ns >= 0:
            self.fleet.events.push(max(self._due_ns(row, gateway, -1), now_ns), TIME_OUT, TIME_OUT, gateway, row)
        return (<Gateway>self._gateways[gateway]).arrive(row, now_ns)

    cdef int _time_out(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t gateway = self._gateway_for(row), index = self._requests[row].replica
        if self._requests[row].status >= COMPLETED or now_ns < self._due_ns(row, gateway, index):
            return 0                                        # TIME_OUT: it moved to another replica meanwhile
        if index >= 0:
            self.fleet.withdraw(row, TIMED_OUT, now_ns)
        else:
            (<Gateway>self._gateways[gateway]).give_up(row, now_ns)
        if self._requests[row].status == TIMED_OUT:         # else a replica that lagged behind ended it before
            self._last_event_ns = now_ns
        return 0

    cdef int _drain(self) except -1 nogil:
        """Run the replicas side by side, in slices of time, until none has work."""
        cdef int64_t end_ns = self._horizon_ns + 1, slice_ns = FIRST_SLICE_NS, before, first_ns
        cdef int32_t index
        while not self._stopped:
            first_ns = NEVER_NS
            for index in range(self.fleet.num_replicas):
                first_ns = min(first_ns, (<Replica>self.fleet.entries[index].replica).wake_ns)
            if first_ns >= end_ns or first_ns == NEVER_NS:
                break
            before = self._recorder.iterations
            self.clock_ns = max(self.clock_ns, min(first_ns, end_ns - slice_ns) + slice_ns)
            self._advance_all(min(self.clock_ns, end_ns))
            slice_ns = self._fitted(slice_ns, self._recorder.iterations - before)
            if self._recorder.iterations >= self._next_poll:
                self._poll(min(self.clock_ns, end_ns))
        return 0

    cdef int _poll(self, int64_t now_ns) except -1 nogil:
        cdef int32_t index
        cdef int64_t open_ns = now_ns           # every iteration that starts before it has been recorded
        cdef bint is_full = self._held_bytes() >= HELD_BYTES
        if is_full:
            self._advance_all(now_ns)
            for index in range(self.fleet.num_replicas):
                open_ns = min(open_ns, (<Replica>self.fleet.entries[index].replica).first_open_ns())
        with gil:
            if is_full:
                self._recorder.flush(open_ns)
            if self._monitor is not None and self._monitor(now_ns, self._recorder.finished):
                self._stopped = True
        for index in range(self.fleet.num_replicas):
            if (<Replica>self.fleet.entries[index].replica).rank.is_livelocked:
                self._stopped = True
        self._next_poll = self._recorder.iterations + self._poll_iterations
        return 0

    cdef int64_t _held_bytes(self) except -1 nogil:
        """Return the memory of rows of iterations that were not passed on."""
        if not self._recorder.wants_iterations:
            return 0
        with gil:
            return self._recorder.held_bytes()

    # ---- results

    def _waits_in_vain(self):
        """Return whether a request waits at a gateway for ever; a horizon ends no such wait."""
        cdef int64_t event_ns = self.fleet.events.next_time()
        return (not self._stopped and self.source.num_left == 0 and self.fleet.wakes.top_time() == NEVER_NS
                and (event_ns == NEVER_NS or event_ns <= self._horizon_ns))

    def _end_of_time(self):
        """Return the end of the clock: a stop, the horizon, or the end of the last request and iteration."""
        requests = self.workload.requests
        if self._stopped:
            return self.clock_ns
        if self._horizon_ns < NEVER_NS - 1:
            return self._horizon_ns
        chunks = self.workload.chunks
        before_ns = 0 if chunks is None else chunks.last_completed_ns
        return max(self._last_event_ns, before_ns, int(requests["completed_ns"].max(initial=0)),
                   *((<Replica>replica).pipeline.last_end_ns for replica in self.replicas))

    def _limits(self):
        """Return why each replica turns requests away, as in `domain.run.Run`; empty if none was turned away."""
        cdef Replica replica
        cdef int64_t completed = 0
        for replica in self.replicas:
            completed += replica.rank.row.completed
        if completed == self._num_requests or not np.isin(
                self.workload.requests["status"], (records.REJECTED, records.DROPPED)).any():
            return []
        schedulers = [(<Replica>replica).rank.scheduler for replica in self.replicas]
        return [(each.limits(), each.why_dropped()) for each in schedulers]

    def tier_rows(self):
        """Return (replica, row) of each level of the tiers; replica -1: a store that replicas share."""
        cdef Replica replica
        cdef ChunkStore store
        for store in self._stores.values():             # replicas notice ended writes only at their next use
            store.settle(self._end_of_time())
        found = [(replica.index, row) for replica in self.replicas if replica.scheduler.tier is not None
                 for row in replica.scheduler.tier.rows()]
        return found + [(-1, store.row()) for store in self._stores.values()]

    def _columns(self):
        """Return the columns of /requests that replicas filled in, with values for prefill legs."""
        names = () if self._tier_use is None else self._tier_use.dtype.names
        encoded = {} if self._encoded_tokens is None else {"encoded_tokens": self._encoded_tokens}
        return {name: self._tier_use[name] for name in names} | encoded

    def _replica_table(self):
        cdef ReplicaRow[::1] rows
        cdef Replica replica
        cdef int32_t i
        table = np.zeros(self.fleet.num_replicas, records.REPLICA)
        rows = table
        for i, replica in enumerate(self.replicas):
            rows[i] = replica.rank.row
            rows[i].preemptions = replica.rank.scheduler.preemptions
            rows[i].prefix_query_tokens = replica.rank.scheduler.prefix_query_tokens
            rows[i].prefix_hit_tokens = replica.rank.scheduler.prefix_hit_tokens
        return table
