"""The event loop: replicas on one clock, fed by arrivals.

Between two arrivals at a replica nothing outside can change what it does, so it is advanced only when something reaches
it. A router that looks at replicas couples them: then a heap of wake times tells which ones change before each event,
and those are brought up to date.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
cimport cython

from simulator.core.arithmetic cimport round_half_up
from simulator.core.clock cimport NEVER_NS
from simulator.core.errors cimport out_of_memory
from simulator.core.event_queue cimport Event, EventQueue
from simulator.core.wake_heap cimport WakeHeap
from simulator.domain.request cimport COMPLETED, WAITING, Demand, Request
from simulator.domain.tables cimport ReplicaRow
from simulator.engine.replica cimport Replica
from simulator.routing.base cimport Router

import numpy as np

from simulator.domain import records
from simulator.domain.run import Run

cdef enum:
    POLL_ITERATIONS = 1 << 16           # a few milliseconds of work
    SLICE_ARRIVALS = 1024               # per replica, of arrivals served at once
    FIRST_SLICE_NS = 1000000000         # of simulated time while draining; then fitted to POLL_ITERATIONS


@cython.final
cdef class Cluster:
    """Replicas on one clock, a router in front of them, and the requests that come.

    replicas : list of Replica, in order of their index.
    workload : simulator.workload.base.Workload; its `requests` are written to.
    setup : build.EngineSetup, of which horizon, host times and coupling concern the cluster.
    hooks : build.Hooks.
    """

    def __init__(self, replicas, Router router, workload, setup, hooks):
        cdef Request[::1] requests = workload.requests
        cdef const Demand[::1] demands = workload.demands
        cdef Replica replica
        self.replicas = list(replicas)
        self.workload = workload
        self._num_replicas = len(self.replicas)
        self._replicas = <void**>malloc(self._num_replicas * sizeof(void*))
        if self._replicas == NULL:
            raise MemoryError()
        for i, replica in enumerate(self.replicas):
            self._replicas[i] = <void*>replica
        self._router = router
        self._recorder = hooks.recorder
        self._monitor = hooks.monitor
        self._num_requests = len(requests)
        if self._num_requests:
            self._requests = &requests[0]
            self._demands = &demands[0]
            self._has_deadlines = bool((workload.demands["deadline_ns"] >= 0).any())
        self._horizon_ns = NEVER_NS - 1 if setup.horizon_ns is None else setup.horizon_ns
        self._queue_base_ns = setup.host.queue_base_us * 1e3
        self._queue_token_ns = setup.host.queue_per_prompt_token_us * 1e3
        self._delays_queue = self._queue_base_ns > 0 or self._queue_token_ns > 0
        self._output_ns = round(setup.host.output_token_us * 1e3)
        self._events = EventQueue()
        self._coupled = setup.coupled or router.reads_state
        self._wakes = WakeHeap(self._num_replicas)
        self._next_poll = POLL_ITERATIONS

    def __dealloc__(self):
        free(self._replicas)
        free(self._following)
        free(self._ends)

    def run(self):
        """Simulate until nothing is left to do, the horizon, or a stop; return the `Run`.

        May be called once. Stopped by the monitor or by a livelock, the run is not complete.
        """
        with nogil:
            if not (self._coupled or self._has_deadlines or self._delays_queue):
                self._run_in_slices()
            self._loop()
            if not self._stopped:
                self._drain()
            if self._stopped:
                self._advance_all(self.clock_ns)        # some may lag behind the clock
        return self._conclude()

    def stop(self):
        """Return the `Run` as far as it came, after an exception ended `run`."""
        self._stopped = True
        return self._conclude()

    def _conclude(self):
        cdef Replica replica
        for replica in self.replicas:
            replica.settle(self.clock_ns if self._stopped else self._horizon_ns + 1)
        if self._recorder.wants_iterations:
            self._recorder.flush(NEVER_NS, self._num_replicas == 1)
        self._recorder.close()
        model = (<Replica>self.replicas[0])._latency
        diagnosis = self._diagnose() + model.warnings()
        cannot_go_on = any(replica.is_livelocked or replica.is_out_of_time for replica in self.replicas)
        return Run(workload=self.workload, complete=not (self._stopped or cannot_go_on), clock_ns=self._end_of_time(),
                   replicas=self._replica_table(), itl_ns=self._recorder.gaps, latency=model.provenance(),
                   diagnosis=diagnosis)

    # ---- the loop

    cdef int _loop(self) except -1 nogil:
        cdef int64_t arrival_ns, event_ns, now_ns
        cdef Event event
        while not self._stopped:
            arrival_ns = self._requests[self._next].arrival_ns if self._next < self._num_requests else NEVER_NS
            event_ns = self._events.next_time()
            now_ns = min(arrival_ns, event_ns)
            if now_ns > self._horizon_ns:
                break
            if self._coupled:
                self._catch_up(now_ns)
            self.clock_ns = now_ns
            if arrival_ns <= event_ns:
                self._arrive(<int32_t>self._next, now_ns)
                self._next += 1
            else:
                event = self._events.pop()
                if event.kind == ENQUEUE:
                    self._enqueue(<int32_t>event.payload, now_ns)
                elif event.kind == TIME_OUT:
                    self._time_out(<int32_t>event.payload, now_ns)
            if self._recorder.iterations >= self._next_poll:
                self._poll(now_ns)
        return 0

    cdef int _run_in_slices(self) except -1 nogil:
        """Serve all arrivals, many per replica before the next replica is touched.

        Replicas that nobody looks at do not see in which order they are simulated, but the processor's caches do: with
        512 replicas and block tables this takes an eighth of the time of turns at every arrival.
        """
        cdef int64_t most = SLICE_ARRIVALS * <int64_t>self._num_replicas, before, done
        cdef int64_t window = self._num_replicas if self._recorder.wants_iterations else most
        self._following = <int32_t*>malloc(min(most, self._num_requests + 1) * sizeof(int32_t))
        self._ends = <int32_t*>malloc(2 * self._num_replicas * sizeof(int32_t))
        if self._following == NULL or self._ends == NULL:
            return out_of_memory()
        while not self._stopped:
            before = self._recorder.iterations
            if self._serve_slice(window) == 0:
                break
            done = self._recorder.iterations - before
            if self._recorder.iterations >= self._next_poll:
                self._poll(self.clock_ns)
            if self._recorder.wants_iterations:         # as many arrivals as fill the rows that are held
                if done > POLL_ITERATIONS:
                    window = max(window // 2, 1)
                elif done < POLL_ITERATIONS // 4:
                    window = min(2 * window, most)
        return 0

    cdef int64_t _serve_slice(self, int64_t window) except -1 nogil:
        """Serve up to `window` arrivals; return how many there were."""
        cdef int32_t* following = self._following
        cdef int32_t* first = self._ends
        cdef int32_t* last = self._ends + self._num_replicas
        cdef int64_t begin = self._next, end = min(self._num_requests, self._next + window)
        cdef int32_t row, index
        while end > begin and self._requests[end - 1].arrival_ns > self._horizon_ns:
            end -= 1
        for index in range(self._num_replicas):
            first[index] = -1
        for row in range(<int32_t>begin, <int32_t>end):
            index = self._router.route(row, self._requests[row].arrival_ns)
            self._requests[row].replica = index
            self._requests[row].status = WAITING
            if first[index] < 0:
                first[index] = row
            else:
                following[last[index] - begin] = row
            following[row - begin] = -1
            last[index] = row
        for index in range(self._num_replicas):
            row = first[index]
            while row >= 0:
                self._enqueue(row, self._requests[row].arrival_ns)
                row = following[row - begin]
        self._next = end
        if end > begin:
            self.clock_ns = self._last_event_ns = self._requests[end - 1].arrival_ns
        return end - begin

    cdef int _arrive(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef Request* request = &self._requests[row]
        cdef int64_t delay_ns = round_half_up(self._queue_base_ns + self._queue_token_ns * request.prompt_tokens)
        self._last_event_ns = now_ns
        request.status = WAITING
        request.replica = self._router.route(row, now_ns)
        if delay_ns > 0:
            self._events.push(now_ns + delay_ns, ENQUEUE, ENQUEUE, request.replica, row)
        else:
            self._enqueue(row, now_ns)
        if self._has_deadlines and self._demands[row].deadline_ns >= 0:
            self._events.push(max(self._demands[row].deadline_ns - self._output_ns, now_ns), TIME_OUT, TIME_OUT,
                              request.replica, row)
        return 0

    cdef int _enqueue(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t index = self._requests[row].replica
        if self._requests[row].status >= COMPLETED:         # timed out on the way to the queue
            return 0
        (<Replica>self._replicas[index]).advance(now_ns, now_ns)
        (<Replica>self._replicas[index]).enqueue(row, now_ns)
        if self._coupled:
            self._wakes.set(index, (<Replica>self._replicas[index]).wake_ns)
        return 0

    cdef int _time_out(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t index = self._requests[row].replica
        if self._requests[row].status >= COMPLETED:
            return 0
        (<Replica>self._replicas[index]).advance(now_ns + 1, now_ns + 1)
        (<Replica>self._replicas[index]).time_out(row, now_ns)
        self._last_event_ns = now_ns
        if self._coupled:
            self._wakes.set(index, (<Replica>self._replicas[index]).wake_ns)
        return 0

    cdef int _catch_up(self, int64_t until_ns) except -1 nogil:
        cdef int32_t index
        while self._wakes.top_time() < until_ns:
            index = self._wakes.top_index()
            (<Replica>self._replicas[index]).advance(until_ns, NEVER_NS)        # runs may be long: arrivals cut them
            self._wakes.set(index, (<Replica>self._replicas[index]).wake_ns)
        return 0

    cdef int _advance_all(self, int64_t until_ns) except -1 nogil:
        cdef int32_t index
        for index in range(self._num_replicas):
            (<Replica>self._replicas[index]).advance(until_ns, until_ns)
            if self._coupled:
                self._wakes.set(index, (<Replica>self._replicas[index]).wake_ns)
        return 0

    cdef int _drain(self) except -1 nogil:
        """Run the replicas side by side, in slices of time, until none has work."""
        cdef int64_t end_ns = self._horizon_ns + 1, slice_ns = FIRST_SLICE_NS, before, first_ns
        cdef int32_t index
        while not self._stopped:
            first_ns = NEVER_NS
            for index in range(self._num_replicas):
                first_ns = min(first_ns, (<Replica>self._replicas[index]).wake_ns)
            if first_ns >= end_ns or first_ns == NEVER_NS:
                break
            before = self._recorder.iterations
            self.clock_ns = max(self.clock_ns, min(first_ns, end_ns - slice_ns) + slice_ns)
            self._advance_all(min(self.clock_ns, end_ns))
            if self._recorder.iterations - before < POLL_ITERATIONS // 4:
                slice_ns = min(2 * slice_ns, NEVER_NS // 4)
            elif self._recorder.iterations - before > POLL_ITERATIONS:
                slice_ns = max(slice_ns // 2, 1)
            if self._recorder.iterations >= self._next_poll:
                self._poll(min(self.clock_ns, end_ns))
        return 0

    cdef int _poll(self, int64_t now_ns) except -1 nogil:
        cdef int32_t index
        cdef int64_t open_ns = now_ns           # every iteration that starts before it has been recorded
        if self._recorder.wants_iterations:
            self._advance_all(now_ns)
            for index in range(self._num_replicas):
                open_ns = min(open_ns, (<Replica>self._replicas[index]).first_open_ns())
        with gil:
            if self._recorder.wants_iterations:
                self._recorder.flush(open_ns, self._num_replicas == 1)
            if self._monitor is not None and self._monitor(now_ns, self._recorder.finished):
                self._stopped = True
        for index in range(self._num_replicas):
            if (<Replica>self._replicas[index]).is_livelocked:
                self._stopped = True
        self._next_poll = self._recorder.iterations + POLL_ITERATIONS
        return 0

    # ---- what came of it

    def _end_of_time(self):
        """Return how far the clock came: to a stop, the horizon, or the last request."""
        requests = self.workload.requests
        if self._stopped:
            return self.clock_ns
        if self._horizon_ns < NEVER_NS - 1:
            return self._horizon_ns
        if not len(requests):
            return 0
        return max(self._last_event_ns, int(requests["completed_ns"].max()))

    def _replica_table(self):
        cdef ReplicaRow[::1] rows
        cdef Replica replica
        cdef int32_t i
        table = np.zeros(self._num_replicas, records.REPLICA)
        rows = table
        for i, replica in enumerate(self.replicas):
            rows[i] = replica.row
            rows[i].preemptions = replica.scheduler.preemptions
            rows[i].prefix_query_tokens = replica.scheduler.prefix_query_tokens
            rows[i].prefix_hit_tokens = replica.scheduler.prefix_hit_tokens
        return table

    def _diagnose(self):
        """Return a message for each replica that cannot go on."""
        cdef Replica replica
        messages = []
        for replica in self.replicas:
            waiting = replica.scheduler.waiting.size
            if replica.is_livelocked:
                running = replica.scheduler._running.size
                messages.append(
                    f"replica {replica.index}: livelock: {waiting} waiting and {running} running requests preempt each "
                    "other for ever, and no token is sampled; "
                    f"{replica.scheduler.kv.num_blocks} KV blocks are too few. "
                    "Give more blocks, lower max_num_seqs, or leave scheduler_reserve_full_isl on")
            elif replica.is_out_of_time:
                messages.append(f"replica {replica.index}: an iteration would end after the last instant of the clock, "
                                "253 years; lower the prices of [latency]")
            elif waiting and not self._stopped and replica.wake_ns == NEVER_NS:
                messages.append(self._describe_stuck(replica))
        return messages

    def _describe_stuck(self, Replica replica):
        cdef int32_t row = replica.scheduler.waiting.top()
        kv = replica.scheduler.kv
        text = int(self._requests[row].prompt_tokens) + int(self._requests[row].output_tokens)
        blocks = -(-text // kv.block_size)
        reason = "needs more tokens in one iteration than the budget allows: raise max_num_batched_tokens"
        if blocks > kv.num_blocks:
            reason = (f"needs {blocks} KV blocks for {text} tokens, the replica has {kv.num_blocks}; vLLM refuses to "
                      "start with such a max_model_len: lower it or give more blocks")
        return (f"replica {replica.index}: stuck: request {self.workload.request_ids[row]} and "
                f"{replica.scheduler.waiting.size - 1} behind it wait for ever: it {reason}")
