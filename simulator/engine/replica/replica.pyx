"""One serving instance: the order of an iteration, without any policy."""
from libc.string cimport memcpy
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.domain.request cimport COMPLETED
from simulator.engine.replica.pipeline cimport (
    free_pipeline, is_full, newest, oldest, put_off, reserve_pipeline, retire, spare_batch, take_out,
    time_batch, vacant_place)
from simulator.engine.replica.rounds cimport (
    begin_rounds, free_rounds, grow_rounds, plan_rounds, reserve_rounds, take_back_rounds)
from simulator.engine.replica.run_ahead cimport (
    END_OF_CLOCK_NS, MAX_RUN, cut_run, drop_from_run, free_run, grow_run, iteration_at, plan_run, plan_multi_token,
    take_back)

cdef enum:
    MOST_STILL = 10000          # turns without tokens at one instant: no policy needs more than a few


cdef inline int end_of(Replica self) except -1 nogil:
    """Do the work of `end_oldest`; the loop has it inline."""
    cdef Batch* batch = oldest(&self.pipeline)
    if self.pipeline.num_in_flight == 0:
        return 0
    if self.run.length > 1:
        self._end_ahead(self.run.length - 1)
    if not self._ends_plainly:
        return self._end_otherwise(batch)
    self._end_iteration(batch)
    retire(&self.pipeline)
    return 0


@cython.final
cdef class Replica:
    """One replica on the cluster's clock.

    index : its number, from 0.
    rank : the replica's own.
    latency : may be shared.
    setup : build.ReplicaSetup, shared with other replicas.
    """

    def __init__(self, int32_t index, Rank rank, LatencyModel latency, setup):
        self.index, self.rank, self.scheduler, self.latency = index, rank, rank.scheduler, latency
        self.scheduler.tells_spread = latency.prices_spread
        self._observer = setup.observer
        reserve_pipeline(&self.pipeline, latency.num_stages, setup.is_async)
        reserve_rounds(&self.rounds, latency.num_stages)
        self.run.length = 1
        self.run.keeps_contexts = self.scheduler.multi_token is not None
        self.wake_ns = NEVER_NS
        self._heeds_arrivals = setup.heeds_arrivals and latency.num_stages > 1
        self._ends_plainly = not (self.scheduler.copies or self.scheduler.ends_at_start or self._heeds_arrivals)
        self._begins_plainly = self.pipeline.turn_interval == 0 and not self.scheduler.copies
        self.first_sibling, self.num_siblings = index, 1
        self._note_account()

    def join_lock_step(self, LockStepGroup lock_step, int32_t first_sibling, int32_t num_siblings):
        """Join a lockstep group, with `num_siblings` replicas from `first_sibling` on."""
        self.lock_step, self.first_sibling, self.num_siblings = lock_step, first_sibling, num_siblings

    def __dealloc__(self):
        free_pipeline(&self.pipeline)
        free_run(&self.run)
        free_rounds(&self.rounds)

    def check(self):
        """Raise RuntimeError unless scheduler and heap agree; between iterations only."""
        self.rank.check()

    cdef int advance(self, int64_t until_ns, int64_t horizon_ns) except -1 nogil:
        cdef int64_t now_ns
        if self.lock_step is not None:
            return self.lock_step.advance(until_ns, horizon_ns)
        while self.wake_ns < until_ns:
            now_ns = self.wake_ns
            if not self.has_ended:
                end_of(self)
            if not self.has_ended or self.scheduler.notes_always:   # then also transfers that ended at this instant
                self.note_transfers(now_ns)
            self.has_ended = False
            self.begin(now_ns, horizon_ns)
        return 0

    cdef int end_due(self) except -1 nogil:
        if self.lock_step is not None:
            return self.lock_step.end_due()
        end_of(self)
        self.note_transfers(self.wake_ns)
        self.has_ended = True
        return 0

    cdef int enqueue(self, int32_t row, int64_t now_ns) except -1 nogil:
        if not self.rank.enqueue(row, now_ns):
            return 0
        if self.lock_step is not None:
            return self.lock_step.arrive(self.index, row, now_ns)
        if self.run.length > 1:
            self.wake_ns = self._cut_run(now_ns)
        else:
            self.rouse(now_ns)
        return 0

    cdef int withdraw(self, int32_t row, int8_t status, int64_t now_ns) except -1 nogil:
        if self.rank.request(row).status >= COMPLETED:
            return 0
        self.settle_run(now_ns + 1)                     # its blocks are free from now on
        if self.rank.withdraw(row, status):
            return 0
        if self.lock_step is not None:
            self.lock_step.forget(self.index, row)
            self.lock_step.rouse(now_ns)
        elif self.pipeline.num_in_flight == 0 and not self.is_halted:
            self.wake_ns = now_ns                       # it may have blocked the queue
        return 0

    cdef int64_t first_open_ns(self) noexcept nogil:
        return oldest(&self.pipeline).start_ns if self.pipeline.num_in_flight > 0 else NEVER_NS

    cdef int settle(self, int64_t now_ns) except -1 nogil:
        self.settle_run(now_ns)
        self.rank.forget_pauses()
        return self.rank.settle()

    cdef int _raise_latency_fault(self) except -1 nogil:
        with gil:
            self.latency.raise_if_failed()
        return 0

    cdef int _observe(self, bint has_ended) except -1 nogil:
        with gil:
            (self._observer.ended if has_ended else self._observer.scheduled)(self)
        return 0

    cdef int _tell_of_transfers(self) except -1 nogil:
        with gil:
            self._observer.reported(self)
        return 0

    # ---- the begin of an iteration

    cdef int begin(self, int64_t now_ns, int64_t horizon_ns) except -1 nogil:
        cdef Batch* batch
        if not self._begins_plainly:
            self._fill_otherwise(now_ns)
        else:
            while self.pipeline.num_in_flight < self.pipeline.depth:
                batch = vacant_place(&self.pipeline)
                self.rank.form(batch, now_ns)
                if self._observer is not None:
                    self.formed = batch
                    self._observe(False)
                if batch.shape.num_sequences == 0 and not self.scheduler.pauses(batch):
                    if self.scheduler.failed.size > 0 and self.pipeline.num_in_flight == 0:
                        self._drop_failed(now_ns)       # a step with these departures alone
                        continue
                    if batch.num_preempted == 0 or self.pipeline.num_in_flight > 0 or self.rank.is_livelocked:
                        break
                elif not self._execute(batch):
                    break
        return self._await_end(horizon_ns)

    cdef int _drop_failed(self, int64_t now_ns) except -1 nogil:
        if self.scheduler.failed.size > 0:
            self.pipeline.last_end_ns = now_ns
        return self.rank.drop_failed()

    cdef int _fill_otherwise(self, int64_t now_ns) except -1 nogil:
        self._fill_numbered(now_ns) if self.pipeline.turn_interval > 0 else self._fill_launching(now_ns)
        if self.scheduler.failed.size > 0 and self.pipeline.num_in_flight == 0:
            self._drop_failed(now_ns)                   # a step with these departures alone
            return self._fill_otherwise(now_ns)         # at most once a failed grammar
        return 0

    cdef int _fill_numbered(self, int64_t now_ns) except -1 nogil:
        """Form batches where an empty batch takes a place in the queue, too, as long as there are requests."""
        cdef Batch* batch
        self.pipeline.num_blank = 0
        if self.num_requests() == 0:
            self.scheduler.opens_ns = NEVER_NS  # the request that waited for it has left, and the policy is not called
        while self.num_requests() > 0 and not is_full(&self.pipeline, self.scheduler.step):
            batch = vacant_place(&self.pipeline)
            self.scheduler.step += 1
            batch.step = self.scheduler.step
            self.rank.form(batch, now_ns)
            if self._observer is not None:
                self.formed = batch
                self._observe(False)
            self.pipeline.num_blank += 1
            if batch.shape.num_sequences + batch.num_preempted > 0:
                self.pipeline.num_blank = 0
            batch.feeds = self.scheduler.feeds(batch)
            if self.rank.is_livelocked or (batch.shape.num_sequences > 0 and not self._execute(batch)):
                break
        return 0

    cdef int _fill_launching(self, int64_t now_ns) except -1 nogil:
        """Form batches where a tier copies: a step in which the tier acts counts, even without tokens."""
        cdef Batch* batch
        while self.pipeline.num_in_flight < self.pipeline.depth:
            batch = vacant_place(&self.pipeline)
            if self.scheduler.tier.looks_below:
                self.scheduler.tier.begins(now_ns)
            self.rank.form(batch, now_ns)
            self._launch(batch)
            if self._observer is not None:
                self.formed = batch
                self._observe(False)
            if batch.shape.num_sequences == 0:
                self._note_still(now_ns)
            if self.is_out_of_time or self.stands_still or (
                    batch.shape.num_sequences + batch.num_preempted == 0 and not self.has_acted):
                break
            if batch.shape.num_sequences > 0:
                self.rank.start(batch)
            self.pipeline.num_in_flight += 1
            if self.rank.is_livelocked:
                break
        return 0

    cdef int _launch(self, Batch* batch) except -1 nogil:
        """Compute when the batch just formed executes: after the copies that it waits for."""
        cdef int64_t free_ns = batch.start_ns, launch_ns, duration_ns
        if self.pipeline.num_in_flight > 0 and newest(&self.pipeline).shape.num_sequences > 0:
            free_ns = newest(&self.pipeline).end_ns
        launch_ns = batch.launch_ns = self.scheduler.tier.launch(batch.start_ns, free_ns)
        batch.end_ns, batch.duration_ns = launch_ns, 0
        if batch.shape.num_sequences > 0:
            if self.latency.pads:
                self.latency.pad(&batch.shape, 1, 1)
            duration_ns = self.latency.iteration_ns(&batch.shape)
            if self.scheduler.tier.stays:
                duration_ns += self.scheduler.tier.stays_ns(max(launch_ns, free_ns), duration_ns)
            batch.end_ns = max(launch_ns, free_ns) + duration_ns
            batch.duration_ns = batch.end_ns - free_ns
        if self.latency.has_failed():
            self._raise_latency_fault()
        if batch.end_ns > END_OF_CLOCK_NS:
            self.is_out_of_time = True
        batch.num_done = self.scheduler.tier.begin_loads(launch_ns, max(batch.end_ns, free_ns))
        if batch.shape.num_sequences == 0 or self._observer is not None:
            self.has_acted = self.scheduler.next_transfer_ns() <= launch_ns or self.scheduler.tier.has_acted()
        batch.num_polled = self.scheduler.transfers.poll(launch_ns)
        return 0

    cdef int _await_step(self, int64_t horizon_ns) except -1 nogil:
        """Act next when the oldest step, or a run of steps, ends."""
        cdef Batch* batch = oldest(&self.pipeline)
        batch.end_ns = max(self.wake_ns, batch.end_ns)      # without tokens, it may have ended while another executed
        self.wake_ns = batch.end_ns
        if (batch.num_entries == 0 and batch.num_preempted == 0 and batch.num_starved == 0
                and batch.shape.num_sequences > 0 and self.wake_ns < horizon_ns and self._observer is None):
            horizon_ns = min(horizon_ns, min(self.scheduler.quiet_until_ns(), self.scheduler.opens_ns))
            if self.wake_ns < horizon_ns:
                return self._plan_run(horizon_ns)
        return 0

    cdef int _end_otherwise(self, Batch* batch) except -1 nogil:
        """End a step, or an iteration that took effect when it began."""
        if self.scheduler.copies:
            return self._end_step(batch)
        if self._heeds_arrivals:
            if self.wake_ns < batch.end_ns:                 # it woke for an arrival: nothing has ended
                return 0
            self._end_iteration(batch)
        retire(&self.pipeline)
        return 0

    cdef int _end_step(self, Batch* batch) except -1 nogil:
        if batch.shape.num_sequences > 0:
            self.scheduler.free_put_off()
            self._end_iteration(batch)
        self.scheduler.end_step(batch)
        if self.scheduler.seeded.size > 0:
            self.rank.take_seeds(batch.end_ns)
        if self._observer is not None:
            with gil:
                self._observer.reported(self)
        if batch.shape.num_sequences > 0:
            retire(&self.pipeline)
        else:
            take_out(&self.pipeline)
        return 0

    cdef inline bint _execute(self, Batch* batch) except -1 nogil:
        """Let the batch just formed follow those in flight; False: it would end behind the end of the clock."""
        if self.latency.pads:
            self.latency.pad(&batch.shape, 1, 1)
        time_batch(&self.pipeline, batch, self.latency, self.scheduler.pause_ns)
        if self.latency.has_failed():
            self._raise_latency_fault()
        if batch.end_ns > END_OF_CLOCK_NS:
            self.is_out_of_time = True
            return False
        self.rank.start(batch)
        self.pipeline.num_in_flight += 1
        return True

    cdef inline int _await_end(self, int64_t horizon_ns) except -1 nogil:
        """Act next when the oldest batch, or a run of iterations, ends."""
        cdef const Batch* batch
        if self.pipeline.num_in_flight == 0 or self.rank.is_livelocked or self.is_out_of_time:
            self._note_still(self.wake_ns)
            self.wake_ns = self.scheduler.awaited_ns()
            if self.rank.is_livelocked or self.is_out_of_time or self.stands_still:
                self.wake_ns = NEVER_NS
            return 0
        if not self._ends_plainly:
            return self._await_otherwise(horizon_ns)
        batch = oldest(&self.pipeline)
        self.wake_ns = batch.end_ns
        if (batch.num_entries == 0 and batch.num_preempted == 0 and batch.num_starved == 0 and self.wake_ns < horizon_ns
                and self._observer is None and self.wake_ns < self.scheduler.awaited_ns()):
            self._plan_run(min(horizon_ns, self.scheduler.awaited_ns()))
        return 0

    cdef void _note_still(self, int64_t now_ns) noexcept nogil:
        if self.stands_still:
            return
        self.num_still = self.num_still + 1 if now_ns == self.still_ns else 0
        self.still_ns = now_ns
        self.stands_still = self.num_still >= MOST_STILL

    cdef int _await_otherwise(self, int64_t horizon_ns) except -1 nogil:
        if self.scheduler.copies:
            return self._await_step(horizon_ns)
        self.wake_ns = oldest(&self.pipeline).end_ns
        return 0 if self._heeds_arrivals else self._end_at_start()

    cdef int _end_at_start(self) except -1 nogil:
        """Apply the results of an iteration at its begin; if no request is left, the next may begin beside it."""
        self._end_iteration(oldest(&self.pipeline))
        if self.scheduler.num_running() + self.scheduler.num_waiting() == 0:
            retire(&self.pipeline)
            self.wake_ns = NEVER_NS
        return 0

    cdef int _plan_run(self, int64_t horizon_ns) except -1 nogil:
        return self._plan_members(horizon_ns) if self._plans_plainly else self._plan_otherwise(horizon_ns)

    cdef int _plan_otherwise(self, int64_t horizon_ns) except -1 nogil:
        if self._counts:
            self.latency.count(1, True)
        if self.scheduler.num_groups > 1:
            self._plan_rounds(horizon_ns)
        else:
            self._plan_members(horizon_ns)
        if self._counts:
            self.latency.count(1, False)
        return 0

    cdef inline int _plan_members(self, int64_t horizon_ns) except -1 nogil:
        cdef int32_t behind = self.scheduler.lead
        cdef int64_t most
        most = min(self.rank.num_alike(), <int64_t>MAX_RUN - 2 * behind)
        if most > 1 and (not self.scheduler.overlaps or self._is_followed()):
            if most + 2 * behind > self.run.room:
                grow_run(&self.run, most + 2 * behind)
            if self.run.keeps_contexts:                 # a member leaves while its turns `behind` are in flight
                plan_multi_token(&self.run, &self.pipeline, most + behind, horizon_ns, self.latency, self.scheduler)
            else:
                plan_run(&self.run, &self.pipeline, most, horizon_ns, self.latency, self.rank.kv, self.scheduler.phase)
            self.wake_ns = self.run.ends_ns[self.run.length - 1]
        return 0

    cdef int _plan_rounds(self, int64_t horizon_ns) except -1 nogil:
        cdef int64_t behind = self.pipeline.num_in_flight - 1, most
        if self.scheduler.num_prefilling() > 0 or self._has_freed():
            return 0
        self._make_room(behind + 1)
        if not begin_rounds(&self.rounds, &self.run, &self.pipeline):
            return 0
        most = min(self.rank.num_rounds_alike(&self.rounds, &self.pipeline), MAX_RUN - behind)
        if most > 1:
            self._make_room(most + behind)
            self.run.waiting, self.run.running = self.scheduler.num_waiting(), self.scheduler.num_running()
            plan_rounds(&self.rounds, &self.run, &self.pipeline, most, horizon_ns, self.latency, self.rank.kv)
            self.wake_ns = self.run.ends_ns[self.run.length - 1]
        return 0

    cdef int _make_room(self, int64_t iterations) except -1 nogil:
        if iterations > self.run.room:
            grow_run(&self.run, iterations)
        if self.rounds.room < self.run.room:
            grow_rounds(&self.rounds, self.run.room, self.pipeline.num_stages)
        return 0

    cdef bint _is_followed(self) noexcept nogil:
        """Return whether the batch that executes is followed by a batch of the same members alone."""
        cdef const Batch* batch = newest(&self.pipeline)
        return (self.scheduler.lead > 0 and self.pipeline.num_in_flight == 2 and batch.shape.num_sequences > 0
                and batch.num_entries + batch.num_preempted + batch.num_starved == 0 and not self._has_freed())

    cdef inline bint _has_freed(self) noexcept nogil:
        """Return whether blocks were freed after the newest batch was formed: a run would report them as used."""
        return newest(&self.pipeline).used_blocks != self.rank.kv.num_blocks - self.rank.kv.free_blocks

    # ---- the end of an iteration

    cdef int end_oldest(self) except -1 nogil:
        return end_of(self)

    cdef int _end_ahead(self, int32_t count) except -1 nogil:
        if not self._runs_plainly:
            return self._end_ahead_otherwise(count)
        self.rank.end_ahead(&self.run, oldest(&self.pipeline), count)
        drop_from_run(&self.run, &self.pipeline, count)
        return 0

    cdef int _end_ahead_otherwise(self, int32_t count) except -1 nogil:
        if self.pipeline.num_stages > 1:
            return self.rank.end_rounds(&self.run, &self.rounds, &self.pipeline, count)
        self.rank.end_ahead(&self.run, oldest(&self.pipeline), count)
        self._catch_up(count)
        drop_from_run(&self.run, &self.pipeline, count)
        return 0

    cdef int _catch_up(self, int32_t count) except -1 nogil:
        """Let the tier catch up with the steps of a run."""
        cdef int64_t num_done[2]
        num_done[0], num_done[1] = oldest(&self.pipeline).num_done, newest(&self.pipeline).num_done
        self.scheduler.tier.catch_up(self.run.ends_ns, count, self.run.behind, num_done)
        oldest(&self.pipeline).num_done, newest(&self.pipeline).num_done = num_done[0], num_done[self.run.behind]
        return 0

    cdef int keep_up(self, int64_t now_ns) except -1 nogil:
        cdef int32_t count = iteration_at(&self.run, now_ns) if self.run.length > 1 else 0
        return self._end_ahead(count) if count > 0 else 0

    # ---- in lock step with others

    cdef bint form(self, int64_t now_ns, int64_t free_ns, BatchShape* shape) except -1 nogil:
        cdef Batch* batch = vacant_place(&self.pipeline)
        cdef bint copies = self.scheduler.copies
        if copies and self.scheduler.tier.looks_below:
            self.scheduler.tier.begins(now_ns)
        self.rank.form(batch, now_ns)
        if copies and batch.shape.num_sequences == 0:
            self._launch_idly(batch, now_ns, free_ns)
        elif self._observer is not None and not copies:
            self.formed = batch
            self._observe(False)
        if batch.shape.num_sequences > 0:
            shape[0] = batch.shape
        elif self.pipeline.num_in_flight == 0:
            self._drop_failed(now_ns)
        return batch.shape.num_sequences > 0

    cdef int launch_copies(self, int64_t now_ns, int64_t free_ns) except -1 nogil:
        cdef Batch* batch = newest(&self.pipeline) if self.pipeline.num_in_flight > 0 else vacant_place(&self.pipeline)
        self.launch_ns = batch.launch_ns = self.scheduler.tier.launch(now_ns, free_ns)
        batch.num_polled = self.scheduler.transfers.poll(self.launch_ns)
        if self._observer is not None:
            self.formed = batch
            self._observe(False)
        return self._end_idle()

    cdef int _launch_idly(self, Batch* batch, int64_t now_ns, int64_t free_ns) except -1 nogil:
        """Launch a step of the tier without tokens, which ends at once; async: when the next step is launched."""
        cdef int64_t launch_ns = self.scheduler.tier.launch(now_ns, free_ns)
        cdef bint was_idle = self._is_idle
        self.launch_ns = batch.launch_ns = launch_ns
        batch.num_done = self.scheduler.tier.begin_loads(launch_ns, max(launch_ns, free_ns))
        self.has_acted = self.scheduler.next_transfer_ns() <= launch_ns or self.scheduler.tier.has_acted()
        batch.num_polled = self.scheduler.transfers.poll(launch_ns)
        if self._observer is not None:
            self.formed = batch
            self._observe(False)
        self._end_idle()
        self._is_idle = self.has_acted or batch.num_preempted > 0           # else it has nothing to report
        self._idle_done[0], self._idle_done[1] = batch.num_done, batch.num_polled
        self.has_acted = self.has_acted or was_idle     # the report came after this step was formed
        return self._end_idle() if self.pipeline.depth == 1 else 0

    cdef int _end_idle(self) except -1 nogil:
        cdef Batch* step = spare_batch(&self.pipeline)
        if not self._is_idle:
            return 0
        self._is_idle, step.num_done, step.num_polled = False, self._idle_done[0], self._idle_done[1]
        self.scheduler.end_step(step)
        return self._tell_of_transfers() if self._observer is not None else 0

    cdef int tend_tier(self, int64_t now_ns) except -1 nogil:
        cdef BatchShape shape
        self.has_acted = True
        while self.has_acted and not self.stands_still:
            self._note_still(now_ns)
            self.form(now_ns, now_ns, &shape)
        return self._end_idle()

    cdef int64_t alike_until_ns(self) noexcept nogil:
        if not self.scheduler.copies:
            return self.scheduler.awaited_ns()
        if self.pipeline.num_in_flight > 0:
            return min(self.scheduler.quiet_until_ns(), self.scheduler.opens_ns)
        if self.num_requests() > 0 or not self.scheduler.tier.is_quiet():       # nothing catches up with its tier
            return 0
        return self.scheduler.next_transfer_ns()

    cdef bint is_steady(self) noexcept nogil:
        cdef const Batch* batch = vacant_place(&self.pipeline)
        return batch.num_entries == 0 and batch.num_preempted == 0 and batch.num_starved == 0 and self._observer is None

    cdef bint has_moved(self) noexcept nogil:
        return self.pipeline.num_in_flight > 0 or vacant_place(&self.pipeline).num_preempted > 0

    cdef int launch(self) except -1 nogil:
        cdef Batch* batch = vacant_place(&self.pipeline)
        batch.duration_ns, batch.end_ns = 0, NEVER_NS
        self.rank.start(batch)
        self.pipeline.num_in_flight += 1
        return 0

    cdef int start(self, int64_t begin_ns, int64_t end_ns, const BatchShape* shape) except -1 nogil:
        cdef Batch* batch = oldest(&self.pipeline)          # launched, or the vacant place
        if self.scheduler.copies:
            batch.num_done = self.scheduler.tier.begin_loads(batch.launch_ns, end_ns)
        batch.shape.graph, batch.shape.pad_tokens = shape.graph, shape.pad_tokens
        batch.duration_ns, batch.end_ns = end_ns - begin_ns, end_ns
        if self.pipeline.num_in_flight == 0:
            self.rank.start(batch)
            self.pipeline.num_in_flight += 1
        return 0

    cdef void end_dummy(self, int64_t now_ns) noexcept nogil:
        if self.scheduler.num_members > 0:
            self.rank.stand(now_ns - self.pipeline.last_end_ns)
            self.pipeline.last_end_ns = now_ns

    cdef int64_t num_alike(self, bint holds_prefills) noexcept nogil:
        if self.scheduler.multi_token is not None:
            return 1                                # a run in lock step gives each member a token an iteration
        if holds_prefills and self.scheduler.num_waiting() + self.scheduler.num_prefilling() > 0:
            return 1                                # prompts are held in some steps and not in others
        return self.rank.num_alike() if self.pipeline.num_in_flight > 0 else MAX_RUN

    cdef int begin_run(self, int64_t most) except -1 nogil:
        cdef const Batch* batch = oldest(&self.pipeline)
        if most > self.run.room:
            grow_run(&self.run, most)
        self.run.start_ns, self.run.context_tokens = batch.start_ns, batch.shape.context_tokens
        self.run.used_blocks[0] = batch.used_blocks
        return 0

    cdef bint foresee(self, int32_t number) noexcept nogil:
        cdef int32_t phase = <int32_t>((self.scheduler.iteration + number - 1) % self.rank.kv.block_size)
        self.run.used_blocks[number] = self.run.used_blocks[number - 1] + self.rank.kv.due(phase)
        return self.run.used_blocks[number] <= self.rank.kv.num_blocks - self.rank.kv.slack

    cdef void end_run(self, const RunAhead* common) noexcept nogil:
        if self.pipeline.num_in_flight > 0:
            memcpy(self.run.ends_ns, common.ends_ns, common.length * sizeof(int64_t))
            self.run.length = common.length

    cdef int32_t num_requests(self) noexcept nogil:
        return self.scheduler.num_running() + self.scheduler.num_waiting()

    cdef void cut_own(self, int64_t now_ns) noexcept nogil:
        if self.run.length > 1:
            cut_run(&self.run, now_ns)

    # ---- outside interventions

    cdef void cut(self, int64_t now_ns) noexcept nogil:
        if self.lock_step is not None:
            self.lock_step.cut(now_ns)
        elif self.run.length > 1:
            self.wake_ns = self._cut_run(now_ns)

    cdef inline int64_t _cut_run(self, int64_t now_ns) noexcept nogil:
        if self._counts:
            self._take_back(iteration_at(&self.run, now_ns) + 1 + self.run.behind)
        return cut_run(&self.run, now_ns)

    cdef void _take_back(self, int32_t first) noexcept nogil:
        """Have iterations uncounted that were planned, from this one on."""
        cdef int32_t end = self.run.length + self.run.behind
        if first < end and self.pipeline.num_stages > 1:
            take_back_rounds(&self.rounds, &self.pipeline, first, end, self.latency)
        elif first < end:
            take_back(&self.run, &self.pipeline, first, end, self.latency)

    cdef int settle_run(self, int64_t now_ns) except -1 nogil:
        if self.run.length > 1:
            self.cut(now_ns)
            self.keep_up(now_ns)
        return 0

    cdef int set_latency(self, LatencyModel latency, int64_t now_ns) except -1:
        self.cut(now_ns)
        self.keep_up(now_ns)            # iterations begun so far used the old model
        self.latency = latency
        self._note_account()
        return self.lock_step.set_latency(latency) if self.lock_step is not None else 0

    cdef void _note_account(self) noexcept nogil:
        self._counts = self.latency.has_account()
        self._runs_plainly = self.pipeline.num_stages == 1 and not self.scheduler.copies
        self._plans_plainly = self._runs_plainly and not self._counts

    cdef void rouse(self, int64_t now_ns) noexcept nogil:
        if self.lock_step is not None:
            self.lock_step.rouse(now_ns)
        elif self.wake_ns > now_ns and not self.is_halted and (self.pipeline.num_in_flight == 0 or (
                self._heeds_arrivals and self.pipeline.num_in_flight < self.pipeline.depth)):
            self.wake_ns = now_ns

    cdef void expect(self, int64_t done_ns) noexcept nogil:
        if self.lock_step is not None:
            self.lock_step.expect(done_ns)
        elif self.pipeline.num_in_flight > 0:
            self.cut(done_ns)
        elif self.wake_ns > done_ns and not self.is_halted:
            self.wake_ns = done_ns

    cdef int halt(self, int64_t now_ns) except -1 nogil:
        if self.lock_step is not None:
            return self.lock_step.halt(now_ns)
        self.cut(now_ns)
        self.has_ended, self.wake_ns = False, NEVER_NS
        return self.halt_own(now_ns)

    cdef int halt_own(self, int64_t now_ns) except -1 nogil:
        if self.run.length > 1:
            self._end_ahead(self.run.length - 1)
        self.is_halted, self.halted_ns = True, now_ns
        return 0

    cdef int resume(self, int64_t since_ns, int64_t now_ns) except -1 nogil:
        if self.lock_step is not None:
            return self.lock_step.resume(since_ns, now_ns)
        self.resume_own(since_ns, now_ns)
        if self.pipeline.num_in_flight > 0:
            self.wake_ns = oldest(&self.pipeline).end_ns
        elif self.scheduler.num_waiting() + self.scheduler.num_running() > 0:
            self.wake_ns = now_ns
        else:                                       # blocks may have been read meanwhile
            self.wake_ns = max(now_ns, self.scheduler.awaited_ns())
        return 0

    cdef int resume_own(self, int64_t since_ns, int64_t now_ns) except -1 nogil:
        self.is_halted = False
        if self.pipeline.num_in_flight > 0:
            put_off(&self.pipeline, since_ns, now_ns - since_ns)
            self.rank.delay(oldest(&self.pipeline), now_ns - since_ns)
        return 0

    cdef int evacuate(self, RowList* rows) except -1 nogil:
        cdef int32_t i
        self.rank.empty(oldest(&self.pipeline) if self.pipeline.num_in_flight > 0 else NULL, self.pipeline.last_end_ns,
                        rows)
        self.pipeline.num_in_flight, self._is_idle = 0, False
        # Tokens of an iteration that will not end were noted at its end.
        for i in range(rows.size if self.is_halted and self.scheduler.ends_at_start else 0):
            self.rank.delivery.last_token_ns[rows.rows[i]] = min(
                self.rank.delivery.last_token_ns[rows.rows[i]], self.halted_ns)
        if self.lock_step is not None:
            for i in range(rows.size):
                self.lock_step.forget(self.index, rows.rows[i])
            self.lock_step.abandon()
        return 0

    cdef int64_t next_end_ns(self, int64_t now_ns) noexcept nogil:
        if self.is_halted or self.rank.is_livelocked or self.is_out_of_time or self.stands_still:
            return NEVER_NS
        return oldest(&self.pipeline).end_ns if self.pipeline.num_in_flight > 0 else now_ns

    cdef int take_off(self, int32_t slot) except -1 nogil:
        return self.rank.take_off(slot, self.pipeline.last_end_ns)

    cdef int enqueue_again(self, int32_t row, int64_t now_ns) except -1 nogil:
        self.settle_run(now_ns)
        if self.rank.enqueue_again(row, now_ns):
            self.rouse(now_ns)
        return 0
