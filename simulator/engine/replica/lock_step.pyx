"""Ranks in lock step: attention data parallelism, with mixture-of-experts layers that all ranks enter together.

Each rank is a replica with a scheduler and a KV cache of its own: routers choose among ranks, and views, accounts and
results number them as replicas. The ranks share a clock. A step begins when all have formed their batches; it lasts
`LatencyModel.step_ns` of all batches together; a rank without tokens executes a dummy batch, and requests that arrive
meanwhile wait for the end. Every `sync_interval` steps, and after the first, the ranks agree on whether any has
unfinished requests; until then they go on with dummy batches, and a step of dummies alone lasts as long as one
token of a decoding request. waves.pxd explains how sleeping ranks are woken.

Under async scheduling each rank forms a batch, or a dummy, when the step before it begins to execute. A rank counts a
step when it has formed its batch and applied the results of the step before: so the ranks agree once the last step but
one has ended, and one more step executes after a wave. No recording of async ranks is available: this is derived from
the order of step_with_batch_queue in the loop of DPEngineCoreProc.

With KV tiers each rank has one of its own. A rank with tokens begins its copies when all ranks have formed their
batches, as they agree on sizes before; the step executes when the last rank has waited for its copies, and takes longer
by the longest wait of a layer for its load. A rank without tokens begins its copies, and notices those that have ended,
before its dummy batch. While all ranks sleep, each executes steps of its tier by itself.

Source: vLLM 0.32.0, vllm/v1/engine/core.py, DPEngineCoreProc.run_busy_loop and _has_global_unfinished_reqs;
vllm/v1/worker/gpu_model_runner.py, execute_dummy_batch; vllm/v1/worker/gpu/model_runner.py, execute_model (sizes are
agreed on behind `no_forward` and before `pre_forward`), and vllm/v1/worker/gpu/kv_connector.py. SGLang's ranks have a
HiRadixCache each, too: sgl-project/sglang, the group of its caches is `attn_tp_cpu_group` with DP attention.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.domain.batch cimport BatchShape, clear_shape
from simulator.engine.replica.lock_step_group cimport LockStepGroup
from simulator.engine.replica.replica cimport Replica
from simulator.engine.replica.run_ahead cimport (
    END_OF_CLOCK_NS, MAX_RUN, RunAhead, cut_run, end_taking_back, free_run, grow_run, iteration_at)
from simulator.engine.replica.waves cimport Waves
from simulator.latency.base cimport LONGEST_ITERATION_NS, LatencyModel


cdef struct Step:               # of all ranks together
    BatchShape* shapes          # [num_busy] of the batches, in order of ranks
    int8_t* is_busy             # [rank] it has a batch
    int8_t* is_formed           # [rank] it has formed a batch, or none
    int32_t num_busy
    int32_t num_formed
    int64_t launch_ns           # with tiers that copy: when the last rank can begin; 0: as soon as all have formed
    bint awaits_tier            # a tier had acted, or had a copy under way, when all had formed


@cython.final
cdef class LockStep(LockStepGroup):
    """The clock of the ranks of one replica.

    replicas : list of Replica of one pool, which join it.
    latency : LatencyModel of the pool.
    rules : domain.data_parallel.LockStepRules.
    is_async : schedule a step while the one before it executes.
    """

    cdef list _owners
    cdef void** _replicas               # [_num_ranks]
    cdef int32_t _num_ranks
    cdef LatencyModel _latency
    cdef int64_t _dummy_ns
    cdef readonly Waves waves
    cdef int32_t _sync_interval
    cdef int32_t _prefill_interval
    cdef bint _agrees_at_first
    cdef bint _is_async
    cdef bint _copies                   # each rank has a KV tier that copies
    cdef bint _pads_alike               # all batches are padded to one size
    cdef bint _is_observed
    cdef int64_t _num_steps             # steps that the ranks have counted since they woke
    cdef int64_t _num_executed          # steps begun in total; of a run the first alone
    cdef bint _is_awake                 # all are in step; else each waits for a message, or for the others
    cdef bint _is_stuck                 # no rank can go on until something changes
    cdef int64_t _roused_ns             # when such a change is expected; NEVER_NS: it is not
    cdef int64_t _end_ns                # of the step that executes; NEVER_NS: none does
    cdef Step _steps[2]
    cdef Step* _executing
    cdef Step* _next                    # being formed; async: or formed
    cdef RunAhead _run                  # iterations planned for all; its used_blocks are of no meaning
    cdef bint _counts                   # the latency model is notified of planned iterations that do not execute
    cdef list _log                      # None: not kept
    cdef dict _noted                    # its last entry

    def __init__(self, replicas, LatencyModel latency, rules, is_async=False):
        cdef int32_t i
        self._owners, self._num_ranks, self._latency = list(replicas), len(replicas), latency
        self._sync_interval, self._prefill_interval = rules.sync_interval, rules.prefill_interval
        self._agrees_at_first, self._is_async = rules.agrees_at_first, is_async
        self._pads_alike, self._copies = rules.pads_alike, self._owners[0].scheduler.copies
        self.waves = Waves(self._num_ranks, rules.hop_ns, rules.engines_start)
        self.wake_ns = self._end_ns = self._roused_ns = NEVER_NS
        self._run.length = 1
        self._replicas = <void**>calloc(self._num_ranks, sizeof(void*))
        if self._replicas == NULL:
            raise MemoryError()
        for i in range(2):
            self._steps[i].shapes = <BatchShape*>calloc(self._num_ranks, sizeof(BatchShape))
            self._steps[i].is_busy = <int8_t*>calloc(2 * self._num_ranks, sizeof(int8_t))
            if self._steps[i].shapes == NULL or self._steps[i].is_busy == NULL:
                raise MemoryError()
            self._steps[i].is_formed = self._steps[i].is_busy + self._num_ranks
        self._executing, self._next = &self._steps[0], &self._steps[1]
        for i in range(self._num_ranks):
            self._replicas[i] = <void*>self._owners[i]
            (<Replica>self._replicas[i]).join_lock_step(self, self._owners[0].index, self._num_ranks)
            (<Replica>self._replicas[i]).scheduler.prefill_interval = self._prefill_interval
        self._price_dummies()

    cdef int _price_dummies(self) except -1:
        cdef BatchShape dummy
        clear_shape(&dummy)
        dummy.num_sequences = dummy.num_decodes = dummy.num_samples = dummy.decode_tokens = dummy.context_tokens = 1
        if self._latency.pads:
            self._latency.pad(&dummy, 1, self._num_ranks)
        self._counts = self._latency.has_account()
        self._latency.count(0, False)
        self._dummy_ns = self._latency.step_ns(&dummy, 1, self._num_ranks)
        self._latency.count(1, False)
        self._latency.raise_if_failed()
        return 0

    def __dealloc__(self):
        cdef int32_t i
        for i in range(2):
            free(self._steps[i].shapes)
            free(self._steps[i].is_busy)
        free(self._replicas)
        free_run(&self._run)

    def keep_log(self):
        """From now on log the steps, and the wave messages."""
        self._log, self._is_observed = [], True
        self.waves.keep_log()

    @property
    def log(self):
        """Return a dict per step: begin_ns, end_ns, counter, waves, busy [ranks], goes_on (None: not checked)."""
        return self._log

    # ---- events from outside

    cdef int arrive(self, int32_t index, int32_t row, int64_t now_ns) except -1 nogil:
        self.cut(now_ns)
        self.waves.arrive(index - (<Replica>self._replicas[0]).index, row, now_ns)
        if not self._is_awake and now_ns < self.wake_ns and not self.is_halted:
            self._wake_at(now_ns)
        return 0

    cdef void forget(self, int32_t index, int32_t row) noexcept nogil:
        self.waves.forget(index - (<Replica>self._replicas[0]).index, row)

    cdef int advance(self, int64_t until_ns, int64_t horizon_ns) except -1 nogil:
        cdef int64_t now_ns
        while self.wake_ns < until_ns:
            now_ns = self.wake_ns
            if not self.has_ended:
                self._end_what_is_due(now_ns)
            self.has_ended = False
            if self._is_awake:
                self._go_on(now_ns, horizon_ns)
            else:
                self._gather(now_ns, horizon_ns)
        return 0

    cdef int end_due(self) except -1 nogil:
        self._end_what_is_due(self.wake_ns)
        self.has_ended = True
        return 0

    cdef int _end_what_is_due(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        if self._end_ns <= now_ns:
            self._end(now_ns)
        for i in range(self._num_ranks):
            (<Replica>self._replicas[i]).note_transfers(now_ns)
        if self._roused_ns <= now_ns:
            self.rouse(now_ns)
        return 0

    cdef void cut(self, int64_t now_ns) noexcept nogil:
        cdef int32_t length = self._run.length, i
        if length > 1:
            self._end_ns = cut_run(&self._run, now_ns)
            if self._counts:
                self._take_back(length - self._run.length)
            self._wake_at(self._end_ns)
            for i in range(self._num_ranks):
                (<Replica>self._replicas[i]).cut_own(now_ns)

    cdef void rouse(self, int64_t now_ns) noexcept nogil:
        if self._is_stuck and not self.is_halted:
            self._is_stuck, self._roused_ns = False, NEVER_NS
            self.waves.go_on()
            self._wake_at(now_ns)

    cdef void expect(self, int64_t done_ns) noexcept nogil:
        self.cut(done_ns)
        if self._is_stuck and done_ns < self.wake_ns and not self.is_halted:
            self._roused_ns = done_ns
            self._wake_at(done_ns)

    cdef int halt(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        if self.is_halted:
            return 0
        self.cut(now_ns)
        for i in range(self._num_ranks):
            (<Replica>self._replicas[i]).halt_own(now_ns)
        self._num_steps += self._run.length - 1
        self._num_executed += self._run.length - 1
        self._run.length = 1
        self.is_halted, self.has_ended = True, False
        self._wake_at(NEVER_NS)
        return 0

    cdef int resume(self, int64_t since_ns, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        if not self.is_halted:
            return 0
        self.is_halted = False
        for i in range(self._num_ranks):
            (<Replica>self._replicas[i]).resume_own(since_ns, now_ns)
        if self._end_ns < NEVER_NS:
            self._end_ns += now_ns - since_ns
        self._wake_at(self._end_ns if self._is_awake else now_ns)
        self.rouse(now_ns)
        return 0

    cdef void abandon(self) noexcept nogil:
        if self._is_awake or self._end_ns < NEVER_NS or self._next.num_formed > 0:
            self._stand_still()

    cdef int64_t num_begun(self, int64_t now_ns) noexcept nogil:
        return self._num_executed + (iteration_at(&self._run, now_ns) if self._run.length > 1 else 0)

    cdef int set_latency(self, LatencyModel latency) except -1:
        if latency is not self._latency:
            self._latency = latency
            self._price_dummies()
        return 0

    cdef void _wake_at(self, int64_t time_ns) noexcept nogil:
        cdef int32_t i
        self.wake_ns = time_ns
        for i in range(self._num_ranks):
            (<Replica>self._replicas[i]).wake_at(time_ns)

    # ---- the end of a step

    cdef int _end(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        self.waves.deliver(now_ns)
        for i in range(self._num_ranks):
            if self._executing.is_busy[i]:
                (<Replica>self._replicas[i]).end_oldest()
            else:
                (<Replica>self._replicas[i]).end_dummy(now_ns)
        self._end_ns = NEVER_NS
        if not self._is_async:
            self._count(now_ns)
        return 0

    cdef int _count(self, int64_t now_ns) except -1 nogil:
        """Count a step, or a run of steps; let the ranks agree on whether to go on, if it is time."""
        cdef bint is_asked, goes_on = True
        self._num_steps += self._run.length
        self._num_executed += self._run.length - 1
        self._run.length = 1
        is_asked = self._num_steps % self._sync_interval == 0 or (self._num_steps == 1 and self._agrees_at_first)
        if is_asked:
            goes_on = self._has_unfinished()
        if self._is_observed:
            with gil:
                self._noted["goes_on"] = goes_on if is_asked else None
        self.waves.end_step(goes_on, now_ns)
        if not goes_on:
            self._is_awake, self._num_steps = False, 0
        return 0

    cdef bint _has_unfinished(self) noexcept nogil:
        """Return whether some rank has a request that it has taken in."""
        cdef int32_t i
        for i in range(self._num_ranks):
            if (<Replica>self._replicas[i]).num_requests() > self.waves.num_untaken(i):
                return True
        return False

    # ---- consecutive steps

    cdef int _go_on(self, int64_t now_ns, int64_t horizon_ns) except -1 nogil:
        cdef bint is_steady
        if self._is_async:
            if self._next.num_formed == self._num_ranks and not self._execute(now_ns):
                return 0
            self._count(now_ns)
            if not self._is_awake:
                return self._gather(now_ns, horizon_ns)
        is_steady = self._form_all(now_ns)
        if self._is_async:
            return self._stop(now_ns) if self._is_broken() else 0
        if self._execute(now_ns) and is_steady and self._executing.num_busy > 0 and self._end_ns < horizon_ns:
            self._plan(now_ns, horizon_ns)
        return 0

    cdef bint _form_all(self, int64_t now_ns) except -1 nogil:
        """Let all ranks form their next batches; return whether the step repeats the one before."""
        cdef bint is_steady = not (self._is_observed or self._is_async)
        cdef int32_t i
        for i in range(self._num_ranks):
            self.waves.take(i, now_ns)
            self._form(i, now_ns)
            is_steady = is_steady and (<Replica>self._replicas[i]).is_steady()
        return is_steady

    cdef int _form(self, int32_t i, int64_t now_ns) except -1 nogil:
        cdef Step* step = self._next
        cdef int64_t free_ns = self._end_ns if self._end_ns < NEVER_NS else now_ns
        if self._prefill_interval > 1:
            (<Replica>self._replicas[i]).scheduler.holds_prefills = self._num_steps % self._prefill_interval != 0
        step.is_busy[i] = (<Replica>self._replicas[i]).form(now_ns, free_ns, &step.shapes[step.num_busy])
        step.is_formed[i] = True
        step.num_formed += 1
        step.num_busy += step.is_busy[i]
        if self._is_async and step.is_busy[i]:
            (<Replica>self._replicas[i]).launch()
        if self._copies and step.num_formed == self._num_ranks:
            self._launch_copies(step, now_ns, free_ns)
        return 0

    cdef int _launch_copies(self, Step* step, int64_t now_ns, int64_t free_ns) except -1 nogil:
        """Begin the copies of ranks with tokens, once all ranks have formed; other ranks have begun theirs."""
        cdef int32_t i
        for i in range(self._num_ranks):
            if step.is_busy[i]:
                (<Replica>self._replicas[i]).launch_copies(now_ns, free_ns)
            step.launch_ns = max(step.launch_ns, (<Replica>self._replicas[i]).launch_ns)
            step.awaits_tier = (step.awaits_tier or (<Replica>self._replicas[i]).has_acted
                                or (<Replica>self._replicas[i]).scheduler.next_transfer_ns() < NEVER_NS)
        return 0

    cdef bint _execute(self, int64_t now_ns) except -1 nogil:
        """Begin the step that all ranks have formed; False: no rank can go on until something changes."""
        cdef Step* step = self._next
        cdef int64_t step_ns = self._dummy_ns, begin_ns = max(now_ns, step.launch_ns)
        cdef int32_t busy = 0, i
        if step.num_busy > 0:
            self._pad(step)
            step_ns = self._latency.step_ns(step.shapes, step.num_busy, self._num_ranks)
            if self._latency.has_failed():
                with gil:
                    self._latency.raise_if_failed()
            if self._copies:
                step_ns += self._stays_ns(step, begin_ns, step_ns)
        if (begin_ns + step_ns > END_OF_CLOCK_NS or self._is_broken()
                or (step.num_busy == 0 and not step.awaits_tier and self._has_nowhere_to_go())):
            self._stop(now_ns)
            return False
        self._executing, self._next = step, self._executing
        self._clear_next()
        self._end_ns = begin_ns + step_ns
        self._num_executed += 1
        for i in range(self._num_ranks):
            if step.is_busy[i]:
                (<Replica>self._replicas[i]).start(now_ns, self._end_ns, &step.shapes[busy])
                busy += 1
        self._wake_at(self._end_ns)
        if self._is_observed:
            self._note_step(now_ns)
        return True

    cdef void _clear_next(self) noexcept nogil:
        self._next.num_busy = self._next.num_formed = 0
        self._next.launch_ns, self._next.awaits_tier = 0, False
        memset(self._next.is_busy, False, 2 * self._num_ranks)

    cdef int64_t _stays_ns(self, const Step* step, int64_t begin_ns, int64_t step_ns) noexcept nogil:
        """Return how much longer a step takes if layers of a rank wait for loads, and other ranks for them."""
        cdef int64_t stays_ns = 0
        cdef int32_t i
        for i in range(self._num_ranks):
            if step.is_busy[i] and (<Replica>self._replicas[i]).scheduler.tier.stays:
                stays_ns = max(stays_ns, (<Replica>self._replicas[i]).scheduler.tier.stays_ns(begin_ns, step_ns))
        return stays_ns

    cdef void _pad(self, Step* step) noexcept nogil:
        """Pad batches to sizes of CUDA graphs: all to one size, or each by itself."""
        cdef int32_t i
        if self._latency.pads and self._pads_alike:
            self._latency.pad(step.shapes, step.num_busy, self._num_ranks)
        elif self._latency.pads:
            for i in range(step.num_busy):
                self._latency.pad(&step.shapes[i], 1, 1)

    cdef int _note_step(self, int64_t now_ns) except -1 nogil:
        with gil:
            self._noted = {
                "begin_ns": now_ns, "end_ns": self._end_ns, "counter": self._num_steps, "waves": self.waves.waves,
                "busy": [i for i in range(self._num_ranks) if self._executing.is_busy[<int32_t>i]], "goes_on": None}
            self._log.append(self._noted)
        return 0

    cdef bint _is_broken(self) noexcept nogil:
        cdef int32_t i
        for i in range(self._num_ranks):
            if (<Replica>self._replicas[i]).rank.is_livelocked or (<Replica>self._replicas[i]).stands_still:
                return True
        return False

    cdef bint _has_nowhere_to_go(self) noexcept nogil:
        """Return whether requests wait that no dummy step will help.

        No rank has a message to read, preempted a sequence, or has tokens or copies in flight.
        """
        cdef int32_t i
        cdef bint found = False
        if self._is_async and self._executing.num_busy > 0:
            return False
        for i in range(self._num_ranks):
            if (self.waves.num_untaken(i) > 0 or (<Replica>self._replicas[i]).has_moved()
                    or (<Replica>self._replicas[i]).scheduler.loading > 0
                    or (<Replica>self._replicas[i]).scheduler.awaited_ns() < NEVER_NS):
                return False
            found = found or (<Replica>self._replicas[i]).num_requests() > 0
        return found

    cdef int _stop(self, int64_t now_ns) except -1 nogil:
        """Stop all ranks: the batches they formed are dropped."""
        self._stand_still()
        self._is_stuck = not self._is_broken()
        return 0

    cdef void _stand_still(self) noexcept nogil:
        self._is_awake, self._num_steps = False, 0
        self._clear_next()
        self.waves.stand_still()
        self._end_ns = NEVER_NS
        self._wake_at(NEVER_NS)

    # ---- the first step of a wave: each rank forms its first batch when it is notified of work

    cdef int _gather(self, int64_t now_ns, int64_t horizon_ns) except -1 nogil:
        cdef int64_t next_ns = now_ns
        cdef int32_t i
        self._is_stuck, self._roused_ns = False, NEVER_NS
        while next_ns <= now_ns:
            self.waves.deliver(now_ns)
            for i in range(self._num_ranks):
                if not self._may_form(i):
                    continue
                self.waves.take(i, now_ns)
                if self.waves.is_running(i) or (<Replica>self._replicas[i]).num_requests() > 0:
                    self._form(i, now_ns)
                elif self._copies:
                    (<Replica>self._replicas[i]).tend_tier(now_ns)
            if self._next.num_formed == self._num_ranks and self._end_ns == NEVER_NS:
                return self._fall_in(now_ns, horizon_ns)
            next_ns = self._next_ns()
        self._wake_at(next_ns)
        return 0

    cdef inline bint _may_form(self, int32_t i) noexcept nogil:
        return not self._next.is_formed[i] and (<Replica>self._replicas[i]).pipeline.num_in_flight == 0

    cdef int64_t _next_ns(self) noexcept nogil:
        """Return when something happens that may let a rank form a batch, or all ranks begin a step."""
        cdef int64_t next_ns = min(self._end_ns, self.waves.next_ns())
        cdef int32_t i
        for i in range(self._num_ranks):
            if self._may_form(i):
                next_ns = min(next_ns, self.waves.next_of(i))
                if self._copies and not (<Replica>self._replicas[i]).stands_still:
                    next_ns = min(next_ns, (<Replica>self._replicas[i]).scheduler.next_transfer_ns())
        return next_ns

    cdef int _fall_in(self, int64_t now_ns, int64_t horizon_ns) except -1 nogil:
        """Begin the first step of a wave."""
        if not self._execute(now_ns):
            return 0
        self._is_awake = True
        if self._is_async:
            self._count(now_ns)
            if self._is_awake:
                self._form_all(now_ns)
                return self._stop(now_ns) if self._is_broken() else 0
            return self._gather(now_ns, horizon_ns)
        return 0

    # ---- runs of steps

    cdef int _plan(self, int64_t now_ns, int64_t horizon_ns) except -1 nogil:
        """Plan iterations of an unchanged group, as many as all ranks can."""
        cdef int64_t most = MAX_RUN, step_ns
        cdef int32_t length = 1, i
        if not self.waves.is_settled():
            return 0
        for i in range(self._num_ranks):
            most = min(most, (<Replica>self._replicas[i]).num_alike(self._prefill_interval > 1))
            horizon_ns = min(horizon_ns, (<Replica>self._replicas[i]).alike_until_ns())
        if most <= 1 or self._end_ns >= horizon_ns:
            return 0
        if most > self._run.room:
            grow_run(&self._run, most)
        for i in range(self._num_ranks):
            (<Replica>self._replicas[i]).begin_run(most)
        self._run.start_ns, self._run.ends_ns[0] = now_ns, self.wake_ns
        if self._counts:
            self._latency.count(1, True)
        while length < most and self._run.ends_ns[length - 1] < horizon_ns and self._foresee(length):
            self._move_contexts(1)
            step_ns = self._latency.step_ns(self._executing.shapes, self._executing.num_busy, self._num_ranks)
            if self._latency.has_failed():
                self._take_back(1)
                break
            self._run.ends_ns[length] = self._run.ends_ns[length - 1] + step_ns
            length += 1
        self._run.length = length
        if self._counts:
            self._latency.count(1, False)
        for i in range(self._num_ranks):
            (<Replica>self._replicas[i]).end_run(&self._run)
        self._end_ns = self._run.ends_ns[length - 1]
        self._wake_at(self._end_ns)
        return 0

    cdef void _move_contexts(self, int64_t steps) noexcept nogil:
        """Let the shapes be those of a step of the run so much later; they are of its last."""
        cdef int32_t busy
        for busy in range(self._executing.num_busy):
            self._executing.shapes[busy].context_tokens += steps * self._executing.shapes[busy].num_sequences

    cdef void _take_back(self, int32_t steps) noexcept nogil:
        """Have so many steps uncounted that were the last of the run and will not execute."""
        cdef int32_t _
        self._latency.count(-1, True)
        for _ in range(steps if self._counts else 0):
            self._latency.step_ns(self._executing.shapes, self._executing.num_busy, self._num_ranks)
            self._move_contexts(-1)
        end_taking_back(self._latency)

    cdef bint _foresee(self, int32_t number) noexcept nogil:
        """Let all ranks take their blocks for another iteration of the run; False: one does not get them."""
        cdef int32_t i
        if self._run.ends_ns[number - 1] > END_OF_CLOCK_NS - LONGEST_ITERATION_NS:
            return False
        for i in range(self._num_ranks):
            if (<Replica>self._replicas[i]).pipeline.num_in_flight > 0:
                if not (<Replica>self._replicas[i]).foresee(number):
                    return False
        return True
