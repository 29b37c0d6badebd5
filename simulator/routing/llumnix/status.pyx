"""Delivery of statuses to Llumnix's scheduler: once per iteration, pushed and polled at intervals.

A replica makes a status when an iteration begins, sends the newest to a store at intervals, and the scheduler polls the
store at intervals. Here a state can only be read at the instant of a look: the status pushed at a point of the push
grid is the state at the first look after it, and it is seen from the first point of the poll grid after that look. If
looks are further apart than both intervals, the state at the look itself is taken, fresher than it would be.

Source: llumnix-project/llumnix at 8a693b4: LLUMNIX_INSTANCE_UPDATE_STEPS, LLUMNIX_STATUS_PUSH_INTERVAL and
cms-pull-status-interval-ms; cms_read_client.go for the changes by a status.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
cimport cython

from simulator.core.debug cimport SIM_DEBUG
from simulator.core.errors cimport broken
from simulator.domain.replica_state cimport PREFILL
from simulator.routing.llumnix.account cimport Dispatch
from simulator.routing.llumnix.candidates cimport Candidate, is_idle


@cython.final
cdef class StatusFeed:
    """Copies states of a view to candidates, when they may be known.

    view : View of the replicas.
    candidates : one per replica.
    parameters : LlumnixParameters or those of the rescheduler, of which the status_* keys and `enable_adaptive_pd` are
        read.
    requests : NumPy array of the requests; None: without an account it is not needed.
    account, predictor : receivers of each newer status; None: not used.
    legs : NumPy array, state of the prefill leg of each request; None: there are none. With adaptive P/D they are
        counted apart from the decodes at their replica.
    """

    def __cinit__(self, View view, *_, **__):
        self._pushed = <ReplicaState*>calloc(view.num_replicas, sizeof(ReplicaState))
        if self._pushed == NULL:
            raise MemoryError()

    def __init__(self, View view, Candidates candidates, parameters, requests=None, LocalAccount account=None,
                 OnlinePredictor predictor=None, legs=None):
        cdef const Request[::1] rows, legs_rows
        cdef int32_t i
        if requests is not None and len(requests):
            rows = requests
            self._requests = &rows[0]
        if legs is not None and len(legs):
            legs_rows = legs
            self._legs = &legs_rows[0]
            if parameters.enable_adaptive_pd:
                self.leg_counts = LegCounts(view.num_replicas, len(legs), legs)
        self._owners = requests, legs
        self._view, self._candidates, self._account, self._predictor = view, candidates, account, predictor
        self._push_ns = round(1e9 * parameters.status_push_interval_s)
        self._poll_ns = round(1e9 * parameters.status_poll_interval_s)
        self._step_interval = parameters.status_steps
        self._num_profiled = parameters.num_profiling_steps
        self._max_batched_tokens = parameters.max_num_batched_tokens
        self._pushed_ns = self._push_epoch = self._poll_epoch = -1
        for i in range(candidates.count):
            candidates.items[i].step = -1
            candidates.items[i].infer_type = view.accounts[i].infer_type
            candidates.items[i].node, candidates.items[i].unit = view.accounts[i].node, view.accounts[i].unit
            candidates.items[i].data_parallel_size = parameters.data_parallel_size
        view.wants_counts = view.wants_levels = view.wants_times = True

    def __dealloc__(self):
        free(self._pushed)

    cdef int refresh(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        self.receive(now_ns)
        for i in range(self._candidates.count):
            self.note_door(i)
            if is_idle(&self._candidates.items[i]):
                self._candidates.items[i].time_ns = now_ns      # nothing to report: a sign of life is enough
        if self._predictor is not None:
            self._predictor.fit()
        return 0

    cdef bint note_door(self, int32_t i) noexcept nogil:
        cdef bint was_schedulable = self._candidates.items[i].is_schedulable
        self._candidates.items[i].is_schedulable = self._view.accounts[i].is_routable
        return self._candidates.items[i].is_schedulable != was_schedulable

    cdef bint receive(self, int64_t now_ns) except -1 nogil:
        cdef int64_t push = now_ns // self._push_ns if self._push_ns > 0 else now_ns
        cdef int64_t poll = now_ns // self._poll_ns if self._poll_ns > 0 else 0
        cdef bint is_recent = self._pushed_ns >= 0 and now_ns - self._pushed_ns <= self._push_ns + self._poll_ns
        cdef bint has_come = poll != self._poll_epoch or self._poll_ns == 0
        if self._poll_ns == 0 or (poll != self._poll_epoch and not is_recent):
            self._look(now_ns)
            self._take_all(self._view.states, self.leg_counts.seen if self.leg_counts is not None else NULL,
                           self.headroom.seen if self.headroom is not None else NULL, now_ns)
        elif poll != self._poll_epoch:
            self._take_all(self._pushed, self.leg_counts.pushed if self.leg_counts is not None else NULL,
                           self.headroom.pushed if self.headroom is not None else NULL, now_ns)
        self._poll_epoch = poll
        if push != self._push_epoch and self._poll_ns > 0:
            self._push_epoch, self._pushed_ns = push, now_ns
            self._look(now_ns)
            memcpy(self._pushed, self._view.states, self._candidates.count * sizeof(ReplicaState))
            if self.leg_counts is not None:
                self.leg_counts.push()
            if self.headroom is not None:
                self.headroom.push()
        return has_come

    cdef int _look(self, int64_t now_ns) except -1 nogil:
        self._view.look(now_ns)
        if self.headroom is not None:
            self.headroom.count()
        if self.leg_counts is not None:         # the view shows the present: snapshots are refused there
            self.leg_counts.count()
            return self._check_legs() if SIM_DEBUG else 0
        return 0

    cdef int _check_legs(self) except -1 nogil:
        cdef int32_t i
        cdef const ReplicaState* state
        for i in range(self._candidates.count):
            state = &self._view.states[i]
            if (self.leg_counts.seen[i].requests > state.waiting + state.running
                    or self.leg_counts.seen[i].tokens > state.waiting_tokens + state.running_tokens):
                return broken("StatusFeed: a replica has more prefill legs than requests")
        return 0

    cdef void _take_all(self, const ReplicaState* states, const LegCount* legs, const int64_t* headroom,
                        int64_t now_ns) noexcept nogil:
        cdef int32_t i
        cdef const ReplicaState* state
        for i in range(self._candidates.count):
            state = &states[i]
            if (self._step_interval == 0 or state.iterations - self._candidates.items[i].step >= self._step_interval
                    or (state.waiting == 0 and state.running == 0)):
                self._take_decodes(i, state, &legs[i] if legs != NULL else NULL)
                self._candidates.items[i].headroom_tokens = headroom[i] if headroom != NULL else 0
                self._take(i, state, now_ns)

    cdef void _take(self, int32_t i, const ReplicaState* state, int64_t now_ns) noexcept nogil:
        cdef Candidate* c = &self._candidates.items[i]
        cdef bint is_new_step = state.iterations > c.step
        c.time_ns, c.step, c.is_silent = state.time_ns, state.iterations, state.is_silent
        c.total_tokens = <int64_t>state.num_blocks * state.block_size
        c.used_tokens = <int64_t>state.used_blocks * state.block_size
        c.waiting_prefill_tokens = state.waiting_prefill_tokens
        c.running_prefill_tokens = state.running_prefill_tokens
        c.unallocated_prefill_tokens = state.unallocated_prefill_tokens
        c.loading_tokens, c.loading = state.loading_tokens, state.loading
        c.waiting, c.running = state.waiting, state.running
        c.max_batched_tokens = state.max_batched_tokens or self._max_batched_tokens
        if self._account is not None:
            self._compare(i, state, now_ns)
        if (self._predictor is not None and is_new_step and c.infer_type == PREFILL and state.iteration_ns > 0
                and state.iterations <= self._num_profiled):
            self._predictor.add(<double>state.iteration_prefill_tokens, 1e-6 * <double>state.iteration_ns)

    cdef void _take_decodes(self, int32_t i, const ReplicaState* state, const LegCount* legs) noexcept nogil:
        """Take the requests of a status that need more than one token; running ones less waiting prefill legs, too.

        Only the sum of the two is read.
        """
        cdef Candidate* c = &self._candidates.items[i]
        if legs == NULL and self._legs != NULL and c.infer_type == PREFILL:
            return
        c.waiting_decode_tokens, c.waiting_decodes = state.waiting_tokens, state.waiting
        c.running_decode_tokens, c.running_decodes = state.running_tokens, state.running
        if legs != NULL:
            c.running_decode_tokens -= legs.tokens
            c.running_decodes -= legs.requests

    cdef void _compare(self, int32_t i, const ReplicaState* state, int64_t now_ns) noexcept nogil:
        """Update the account by the requests in the status: those queued before it, and not scheduled by then."""
        cdef int32_t index = self._account.first_of_replica[i]
        cdef Dispatch* one
        cdef const Request* request
        while index >= 0:
            one = &self._account.items[index]
            request = &(self._legs if self._legs != NULL and one.infer_type == PREFILL else self._requests)[one.row]
            one.was_waiting = one.sent_ns < state.time_ns and 0 <= request.enqueued_ns < state.time_ns
            one.is_waiting = one.was_waiting and not 0 <= request.scheduled_ns < state.time_ns
            index = one.next_of_replica
        self._account.reconcile(i, state.waiting, now_ns)
