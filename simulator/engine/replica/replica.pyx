"""One serving instance: the order of an iteration, and nothing of any policy."""
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport free, malloc
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.debug cimport SIM_DEBUG
from simulator.core.finish_heap cimport FinishHeap
from simulator.domain.request cimport COMPLETED, RUNNING, Request
from simulator.engine.replica.parking cimport run_arrived
from simulator.engine.replica.pipeline cimport (
    busy_ns, free_pipeline, oldest, reserve_pipeline, retire, time_batch, vacant_place)
from simulator.engine.replica.run_ahead cimport (
    END_OF_CLOCK_NS, RunAhead, add_used_blocks, cut_run, drop_from_run, free_run, iteration_at, move_to, plan_run,
    reserve_run)
from simulator.core.row_list cimport add_row, has_row
from simulator.latency.base cimport LatencyModel
from simulator.scheduling.base cimport Scheduler, Sequence, sort_by_order
from simulator.domain.iteration cimport Batch, Entry, Preempted

cdef enum:
    OFTEN_CHECKED = 100         # iterations: a debug build checks the first ones, then every so many
    FRUITLESS_LIMIT = 20000     # preemptions without a token that make a livelock; a step preempts max_running at most


@cython.final
cdef class Replica:
    """One replica on the cluster's clock.

    index : its number, from 0.
    scheduler, latency : its policies; the scheduler is its own, the latency model may be shared.
    setup : build.ReplicaSetup, what it shares with the others.
    """

    def __init__(self, int32_t index, Scheduler scheduler, LatencyModel latency, setup):
        cdef Request[::1] requests = setup.workload.requests
        self.index = self.row.replica = index
        self.scheduler = scheduler
        self.row.num_blocks = scheduler.kv.num_blocks
        self._kv = scheduler.kv
        self._latency = latency
        self._recorder = setup.recorder
        self._acceptance = setup.acceptance
        self._delivery = setup.delivery
        self._requests = &requests[0] if len(requests) else NULL
        self._owner = setup.workload
        self._observer = setup.observer
        reserve_pipeline(&self._pipeline, 2 if setup.is_async else latency.num_stages, latency.num_stages,
                         scheduler.max_running)
        self._finish = FinishHeap()
        self.wake_ns = NEVER_NS
        reserve_run(&self._run)
        self._finished = <int32_t*>malloc(scheduler.max_running * sizeof(int32_t))
        if self._finished == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free_pipeline(&self._pipeline)
        free_run(&self._run)
        free(self._finished)
        free(self._aborted.rows)
        free(self._ends_as.rows)

    cdef int advance(self, int64_t until_ns, int64_t horizon_ns) except -1 nogil:
        cdef int64_t now_ns
        while self.wake_ns < until_ns:
            now_ns = self.wake_ns
            if self._pipeline.num_in_flight > 0:
                self._complete()
            self._begin(now_ns, horizon_ns)
        return 0

    cdef int enqueue(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef Request* request = &self._requests[row]
        cdef int8_t refusal = self.scheduler.refusal(row)
        request.replica = self.index
        self.row.requests += 1
        if refusal >= COMPLETED:
            self._delivery.leave(row, refusal, -1)
            return 0
        if request.scheduled_ns < 0:
            request.enqueued_ns = now_ns
        self.scheduler.enqueue(row)
        if self._run.length > 1:
            self.wake_ns = cut_run(&self._run, now_ns)
        elif self._pipeline.num_in_flight == 0 and self.wake_ns > now_ns and not self.is_halted:
            self.wake_ns = now_ns
        return 0

    cdef int withdraw(self, int32_t row, int8_t status, int64_t now_ns) except -1 nogil:
        cdef Request* request = &self._requests[row]
        if request.status >= COMPLETED:
            return 0
        if self._run.length > 1:
            self.wake_ns = cut_run(&self._run, now_ns + 1)
        if request.status != RUNNING:
            self.scheduler.waiting.remove(row)
            self._delivery.leave(row, status, -1)
            if self._pipeline.num_in_flight == 0 and not self.is_halted:
                self.wake_ns = now_ns                   # it may have blocked the queue
            return 0
        add_row(&self._aborted, row)
        add_row(&self._ends_as, status)
        return self._collect_aborted() if self.scheduler.ends_at_start else 0

    cdef int64_t first_open_ns(self) noexcept nogil:
        return oldest(&self._pipeline).start_ns if self._pipeline.num_in_flight > 0 else NEVER_NS

    cdef int settle(self, int64_t now_ns) except -1 nogil:
        cdef int32_t slot
        cdef Sequence* sequence
        if self._run.length > 1:
            self.wake_ns = cut_run(&self._run, now_ns)
            self.keep_up(now_ns)
        slot = self.scheduler._running.head
        while slot >= 0:
            sequence = &self.scheduler._sequences[slot]
            if sequence.is_member:
                self._requests[sequence.row].output_tokens = self.scheduler.outputs(slot)
            slot = self.scheduler._links.next(slot)
        return 0

    cdef int _raise_latency_fault(self) except -1 nogil:
        with gil:
            self._latency.raise_if_failed()
        return 0

    def check(self):
        """Raise RuntimeError unless scheduler and heap agree; between iterations only."""
        self.scheduler.check()
        self._finish.check()
        if self.scheduler.grouping and self._finish.size != self.scheduler.num_members:
            raise RuntimeError(f"{self._finish.size} members end some time, {self.scheduler.num_members} run")

    cdef int _observe(self, bint has_ended) except -1 nogil:
        with gil:
            (self._observer.ended if has_ended else self._observer.scheduled)(self)
        return 0

    cdef int _begin(self, int64_t now_ns, int64_t horizon_ns) except -1 nogil:
        cdef Batch* batch
        while self._pipeline.num_in_flight < self._pipeline.depth:
            batch = vacant_place(&self._pipeline)
            if self.scheduler._arrived.size > 0:
                run_arrived(self.scheduler)
            self.scheduler.schedule(batch, now_ns)
            if batch.num_preempted > 0:
                self._note_preemptions(batch, now_ns)
            if self._observer is not None:
                self._formed = batch
                self._observe(False)
            if batch.shape.num_sequences == 0 and not self.scheduler.pauses(batch):
                if batch.num_preempted == 0 or self._pipeline.num_in_flight > 0 or self.is_livelocked:
                    break
                continue
            time_batch(&self._pipeline, batch, self._latency, self.scheduler.pause_ns)
            if self._latency.has_failed():
                return self._raise_latency_fault()
            if batch.end_ns > END_OF_CLOCK_NS:
                self.is_out_of_time = True
                break
            batch.waiting, batch.running = self.scheduler.waiting.size, self.scheduler._running.size
            batch.used_blocks = self._kv.num_blocks - self._kv.free_blocks
            self._pipeline.num_in_flight += 1
            if batch.num_starved > 0:
                self._note_starvation(batch)
        if self._pipeline.num_in_flight == 0 or self.is_livelocked or self.is_out_of_time:
            self.wake_ns = NEVER_NS
            return 0
        batch = oldest(&self._pipeline)
        self.wake_ns = batch.end_ns
        if self.scheduler.ends_at_start:
            return self._end_at_start(batch)
        if (batch.num_entries == 0 and batch.num_preempted == 0 and batch.num_starved == 0 and self.wake_ns < horizon_ns
                and self._observer is None):
            self._plan_run(batch, horizon_ns)
        return 0

    cdef int _end_at_start(self, Batch* batch) except -1 nogil:
        """Do now what an iteration brings; if nobody is left, the next may begin beside it."""
        self._end_iteration(batch)
        if self.scheduler._running.size + self.scheduler.waiting.size == 0:
            retire(&self._pipeline)
            self.wake_ns = NEVER_NS
        return 0

    cdef int _plan_run(self, Batch* batch, int64_t horizon_ns) except -1 nogil:
        cdef int64_t most = self._finish.top_iteration() - self.scheduler.iteration
        if most > 1 and self.scheduler.repeats():
            plan_run(&self._run, batch, most, horizon_ns, self._latency, self._kv, self.scheduler.phase)
            self.wake_ns = self._run.ends_ns[self._run.length - 1]
        return 0

    cdef int _note_preemptions(self, Batch* batch, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        cdef Preempted* preempted
        for i in range(batch.num_preempted):
            preempted = &batch.preempted[i]
            if preempted.was_member:
                self._finish.remove(preempted.slot)
                self._delivery.last_token_ns[preempted.row] = now_ns - preempted.late_ns
                self._num_late -= preempted.late_ns > 0
        self._fruitless += batch.num_preempted
        if self._fruitless > FRUITLESS_LIMIT + 4 * self.scheduler.max_running:
            self.is_livelocked = True
        return 0

    cdef int _await_end(self, int32_t slot) except -1 nogil:
        """Note when a member is complete: with all but its last token in KV."""
        cdef Sequence* sequence = &self.scheduler._sequences[slot]
        cdef int64_t computed = sequence.prompt_tokens + self._delivery.target(sequence.row) - 1
        return self._finish.push(computed - sequence.offset, sequence.order, slot)

    cdef int _note_starvation(self, Batch* batch) except -1 nogil:
        """Put off the end and the next token of members without a turn."""
        cdef int32_t slot = self.scheduler._running.head
        cdef Sequence* sequence
        while slot >= 0:
            sequence = &self.scheduler._sequences[slot]
            if sequence.is_member and sequence.is_starved:
                self._finish.remove(slot)
                self._await_end(slot)
                self._num_late += sequence.late_ns == 0
                sequence.late_ns += batch.duration_ns
            slot = self.scheduler._links.next(slot)
        return 0

    cdef int _complete(self) except -1 nogil:
        cdef Batch* batch = oldest(&self._pipeline)
        if self._run.length > 1:
            self._end_ahead(batch, self._run.length - 1)
        if not self.scheduler.ends_at_start:
            self._end_iteration(batch)
        retire(&self._pipeline)
        return 0

    cdef int keep_up(self, int64_t now_ns) except -1 nogil:
        cdef int32_t count = iteration_at(&self._run, now_ns) if self._run.length > 1 else 0
        return self._end_ahead(oldest(&self._pipeline), count) if count > 0 else 0

    cdef int _end_ahead(self, Batch* batch, int32_t count) except -1 nogil:
        """End the first iterations of a run; the batch becomes the one behind them."""
        cdef RunAhead* run = &self._run
        cdef int32_t i
        if self._recorder.wants_iterations or self._recorder.wants_tokens:
            for i in range(count):
                move_to(run, batch, i)
                if self._recorder.wants_iterations:
                    self._recorder.iteration(self.index, batch)
                self._sample_members(batch, i, False)
        else:
            self._sample_members(batch, 0, False)       # some may be late; from then on tokens come one iteration apart
            for i in range(1, count):
                self._recorder.gaps.add(run.ends_ns[i] - run.ends_ns[i - 1] + self._delivery.gap_ns, batch.num_members)
        add_used_blocks(run, count, &self.row.used_block_ns)
        self.row.peak_used_blocks = max(self.row.peak_used_blocks, run.used_blocks[count - 1])
        self.row.busy_ns += run.ends_ns[count - 1] - run.start_ns
        self.row.decode_tokens += <int64_t>count * batch.num_members
        self.row.iterations += count
        self._recorder.iterations += count
        move_to(run, batch, count)
        drop_from_run(run, batch, count)
        return self.scheduler.repeat(count)

    cdef int _end_iteration(self, Batch* batch) except -1 nogil:
        cdef int32_t i, slot, row
        self._num_finished = 0
        if batch.shape.num_sequences > 0:
            self._record(batch)
        if self.scheduler.grouping:
            self._sample_members(batch, 0, True)
            self.scheduler.advance()
        if self._aborted.size > 0:
            self._collect_aborted()
        while self._finish.size > 0 and self._finish.top_iteration() <= self.scheduler.iteration:
            slot = self._finish.pop()
            self._finished[self._num_finished] = slot
            self._num_finished += 1
            row = self.scheduler._sequences[slot].row
            self._requests[row].output_tokens = self.scheduler.outputs(slot)
            self._complete_request(row, batch.end_ns)
        for i in range(batch.num_entries):
            self._return(&batch.entries[i], batch.end_ns)
        self._free_finished()
        if batch.shape.num_samples > 0:
            self._fruitless = 0
        if SIM_DEBUG and (self.row.iterations < OFTEN_CHECKED or self.row.iterations % OFTEN_CHECKED == 0):
            with gil:
                self.check()
        return self._observe(True) if self._observer is not None and batch.shape.num_sequences > 0 else 0

    cdef int _record(self, const Batch* batch) except -1 nogil:
        cdef int64_t time_ns = busy_ns(&self._pipeline, batch)
        self._recorder.iterations += 1
        self.row.iterations += 1
        self.row.busy_ns += time_ns
        self.row.used_block_ns += <double>batch.used_blocks * <double>time_ns
        self.row.prefill_tokens += batch.shape.prefill_tokens
        self.row.decode_tokens += batch.shape.decode_tokens
        self.row.peak_used_blocks = max(self.row.peak_used_blocks, batch.used_blocks)
        return self._recorder.iteration(self.index, batch) if self._recorder.wants_iterations else 0

    cdef int _sample_members(self, const Batch* batch, int32_t ahead, bint is_in_progress) except -1 nogil:
        """Count a token, and the gap before it, for each member with a turn."""
        cdef int64_t gap_ns = batch.duration_ns + self._delivery.gap_ns
        cdef int32_t slot, usual = batch.num_members
        cdef Sequence* sequence
        if self._num_late > 0 or self._recorder.wants_tokens or self._aborted.size > 0:
            slot = self.scheduler._running.head
            while slot >= 0:
                sequence = &self.scheduler._sequences[slot]
                if sequence.is_member and not sequence.is_starved:
                    if is_in_progress and has_row(&self._aborted, sequence.row):
                        usual -= 1
                    else:
                        if sequence.late_ns > 0:
                            self._recorder.gaps.add(gap_ns + sequence.late_ns, 1)
                            usual -= 1
                        if self._recorder.wants_tokens:
                            self._recorder.token(sequence.row, self._delivery.observed_ns(
                                batch.end_ns, self.scheduler.outputs(slot) + ahead + 1), 1)
                    self._num_late -= sequence.late_ns > 0
                    sequence.late_ns = 0
                elif sequence.is_member:                # of those that leave, _collect_aborted must know
                    sequence.is_starved = is_in_progress and has_row(&self._aborted, sequence.row)
                slot = self.scheduler._links.next(slot)
        if usual > 0:
            self._recorder.gaps.add(gap_ns, usual)
        return 0

    cdef int _collect_aborted(self) except -1 nogil:
        """Let requests whose clients gave up meanwhile leave without a token."""
        cdef int32_t i, slot
        cdef Sequence* sequence
        for i in range(self._aborted.size):
            slot = self.scheduler.slot_of(self._aborted.rows[i])
            if slot < 0:
                continue
            sequence = &self.scheduler._sequences[slot]
            if sequence.is_member:
                self._finish.remove(slot)
                self._num_late -= sequence.late_ns > 0
                self._requests[sequence.row].output_tokens = self.scheduler.outputs(slot) - 1
            self._delivery.leave(sequence.row, <int8_t>self._ends_as.rows[i], -1)
            self.scheduler.finish(slot)
        self._aborted.size = self._ends_as.size = 0
        return 0

    cdef int _return(self, const Entry* entry, int64_t now_ns) except -1 nogil:
        """Take in what an entry brought: tokens, if it reached the end of its text."""
        cdef Sequence* sequence = &self.scheduler._sequences[entry.slot]
        cdef int32_t row = entry.row, accepted = 0, sampled = 0, left, kept = self._requests[entry.row].output_tokens
        cdef bint is_stale = self.scheduler.stale_tokens(row) > 0
        if is_stale:
            self.scheduler.settle_stale(row, entry.tokens)
        if self._requests[row].status >= COMPLETED or (sequence.row != row and not is_stale):
            return 0
        if not entry.is_partial:
            if entry.drafts > 0:
                accepted = min(self._acceptance.next(row), entry.drafts)
                if entry.is_admission:
                    accepted = 0                        # padding, not drafts of a drafter
            left = self._delivery.target(row) - kept
            sampled = min(accepted + 1, left)
            self._delivery.deliver(row, sampled, now_ns)
            if is_stale:                                # it waits, and its text has grown
                self.scheduler.waiting.tokens += self._requests[row].output_tokens - kept
        if is_stale:
            if sampled > 0 and sampled == left:
                self.scheduler.waiting.remove(row)
                self._complete_request(row, now_ns)
            return 0
        sequence.in_flight -= entry.tokens
        self.scheduler.update(
            entry, sampled, entry.drafts - accepted if sampled > 0 else 0, sampled > 0 and sampled < left)
        if sampled == 0:
            return 0
        if sampled == left:
            self._complete_request(row, now_ns)
            self._finished[self._num_finished] = entry.slot
            self._num_finished += 1
        elif self.scheduler.grouping:
            self.scheduler.join(entry.slot)
            self._await_end(entry.slot)
        return 0

    cdef void _complete_request(self, int32_t row, int64_t now_ns) noexcept nogil:
        self._delivery.leave(row, COMPLETED, now_ns)
        self.row.completed += 1

    cdef int _free_finished(self) except -1 nogil:
        """Free what the finished sequences hold, in scheduled order."""
        cdef int32_t i
        sort_by_order(self._finished, self._num_finished, self.scheduler._sequences)
        for i in range(self._num_finished):
            self.scheduler.finish(self._finished[i])
        return 0
