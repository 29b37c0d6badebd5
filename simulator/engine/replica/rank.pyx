"""One scheduler with its KV cache, and the requests that it runs."""
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport free
cimport cython

from simulator.core.debug cimport SIM_DEBUG
from simulator.core.row_list cimport add_row, has_row
from simulator.domain.iteration cimport Preempted
from simulator.domain.request cimport COMPLETED, FAILED, REJECTED, RUNNING, WAITING
from simulator.engine.replica.member_tokens cimport check_late, forget_late, note_joined, put_off_token
from simulator.engine.replica.pipeline cimport batch_at, spare_batch
from simulator.engine.replica.rounds cimport drop_rounds, move_to_round, next_of_turn, next_phase
from simulator.engine.replica.run_ahead cimport add_used_blocks, most_used_blocks, move_to
from simulator.scheduling.base cimport Group, Turn

cdef enum:
    OFTEN_CHECKED = 100         # iterations: a debug build checks the first ones, then each multiple of this
    LONE_LIMIT = 3              # preemptions of a request with all blocks, after which it never fits
    FRUITLESS_LIMIT = 20000  # preemptions without a token that count as a livelock; a step preempts max_running at most


cdef int fall_out_early(Rank self, int64_t last_end_ns) except -1 nogil:
    """Have all members leave: a halt kept the batch from being formed that would follow the one in flight."""
    cdef int32_t slot = self.scheduler.first_running()
    while slot >= 0:
        if self.scheduler.sequence(slot).is_member:
            self._fall_out(slot, last_end_ns)
        slot = self.scheduler.next_running(slot)
    self.finish.clear()
    return 0


@cython.final
cdef class Rank:
    """One scheduler with its KV cache, and the requests that it runs.

    index : number of its replica, from 0.
    scheduler : the rank's own.
    number : index of the rank in its data-parallel replica.
    setup : build.ReplicaSetup, shared with other replicas.
    """

    def __init__(self, int32_t index, Scheduler scheduler, setup, int32_t number=0):
        cdef Request[::1] requests = setup.workload.requests
        self.scheduler, self.kv = scheduler, scheduler.kv
        self.row.replica, self.row.rank, self.row.num_blocks = index, number, scheduler.kv.num_blocks
        self.delivery, self.recorder, self._acceptance = setup.delivery, setup.recorder, setup.acceptance
        self._legs = setup.legs
        self._requests = &requests[0] if len(requests) else NULL
        self._owner = setup.workload
        self.finish = FinishHeap()
        if self._acceptance is not None:
            self.drafts = DraftCounts(scheduler.turn_tokens - 1)
            if scheduler.grouping and scheduler.turn_tokens > 1:
                scheduler.verify_by(self._acceptance, self.drafts)
        self._is_multi_token = scheduler.multi_token is not None
        self._tells_chunks = scheduler.tier is not None and scheduler.tier.hears_of_chunks
        self._is_usual = not (scheduler.overlaps or self._is_multi_token)
        if scheduler.num_groups > 1:
            self.finish.divide(scheduler.num_groups)

    def __dealloc__(self):
        free(self._finished.rows)
        free(self._aborted.rows)
        free(self._ends_as.rows)
        free(self._lateness.late.rows)

    def check(self):
        """Raise RuntimeError unless scheduler and heap agree; between iterations only."""
        self.scheduler.check()
        self.finish.check()
        check_late(&self._lateness, self.scheduler)
        members = sum(self.scheduler.group_at(i).num_members for i in range(self.scheduler.num_groups))
        if self.scheduler.grouping and self.finish.total_size() != members:
            raise RuntimeError(f"{self.finish.total_size()} members end some time, {members} run")

    def take_lane(self, Recorder recorder, Delivery delivery):
        """Use another recorder from now on, and a delivery with that recorder."""
        self.recorder, self.delivery = recorder, delivery

    def counts(self):
        """Return the counts of `Scheduler.counts`, and those of drafts."""
        found = self.scheduler.counts()
        if self.drafts is not None:
            found["speculation"] = self.drafts.counts()
            if self.scheduler.grammar_drafts is not None:
                found["speculation"]["num_invalid_spec_tokens"] = self.scheduler.grammar_drafts.num_rejected
        return found

    # ---- arrival and departure

    cdef bint enqueue(self, int32_t row, int64_t now_ns) except -1 nogil:
        return self._enqueue(row, now_ns, now_ns)

    cdef bint _enqueue(self, int32_t row, int64_t since_ns, int64_t now_ns) except -1 nogil:
        """Add a request to the queue in which it has waited `since_ns`."""
        cdef Request* request = &self._requests[row]
        cdef int8_t refusal = self.scheduler.refusal(row)
        request.replica = self.row.replica
        self.row.requests += 1
        if refusal >= COMPLETED:
            self.delivery.leave(row, refusal, -1)
            return False
        self._lone = 0
        if request.scheduled_ns < 0:
            request.enqueued_ns = since_ns
        if self._legs is not None:
            self._legs.enqueued(row, now_ns)
        self.scheduler.enqueue(row)
        return True

    cdef bint enqueue_again(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int64_t enqueued_ns = self._requests[row].enqueued_ns
        if self._requests[row].scheduled_ns < 0:
            return self._enqueue(row, enqueued_ns if enqueued_ns >= 0 else now_ns, now_ns)
        self._requests[row].status = WAITING
        self.row.requests += 1
        self.scheduler.waiting.push_front(row)
        if self._legs is not None:
            self._legs.enqueued(row, now_ns)
        return True

    cdef bint withdraw(self, int32_t row, int8_t status) except -1 nogil:
        if self._requests[row].status != RUNNING:
            if not self.scheduler.drop_held(row):
                self.scheduler.waiting.remove(row)
                self.scheduler.gives_up(row)
            self.delivery.leave(row, status, -1)
            return False
        add_row(&self._aborted, row)
        add_row(&self._ends_as, status)
        if self.scheduler.ends_at_start:
            self._collect_aborted()
        return True

    cdef int _drop_failed(self) except -1 nogil:
        cdef int32_t i
        for i in range(self.scheduler.failed.size):
            if self._requests[self.scheduler.failed.rows[i]].status < COMPLETED:     # its client may have given up
                self.withdraw(self.scheduler.failed.rows[i], FAILED)
        self.scheduler.failed.size = 0
        return 0

    cdef int _collect_aborted(self) except -1 nogil:
        """Let requests with clients that gave up during the iteration leave without a token."""
        cdef int32_t i, slot
        cdef Sequence* sequence
        for i in range(self._aborted.size):
            slot = self.scheduler.slot_of(self._aborted.rows[i])
            if slot < 0:
                continue
            sequence = self.scheduler.sequence(slot)
            if sequence.is_member:
                self.finish.remove(slot)
                self._requests[sequence.row].output_tokens = self.scheduler.outputs(slot)
            self.delivery.leave(sequence.row, <int8_t>self._ends_as.rows[i], -1)
            self.scheduler.abort(slot)
        self._aborted.size = self._ends_as.size = 0
        return 0

    # ---- the begin of an iteration

    cdef void _note_admissions(self, const Batch* batch, int64_t now_ns) noexcept nogil:
        cdef const Entry* entry
        cdef int32_t i, computed, found
        for i in range(batch.num_entries):
            entry = &batch.entries[i]
            if entry.is_admission:
                computed = self.scheduler.sequence(entry.slot).num_computed - entry.tokens
                found = self.scheduler.found_tokens(entry.row, computed)
                self._legs.scheduled(entry.row, found, computed - found, now_ns)

    cdef int _note_preemptions(self, Batch* batch, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        cdef Preempted* preempted
        for i in range(batch.num_preempted):
            preempted = &batch.preempted[i]
            if preempted.was_member:
                self.finish.remove(preempted.slot)
                preempted.late_ns += self._lateness.stood_ns
                if preempted.late_ns >= 0:
                    self.delivery.last_token_ns[preempted.row] = now_ns - preempted.late_ns
            self._lone += not preempted.gave_way and (
                preempted.freed_blocks == self.kv.num_blocks or self._is_hemmed_in())
        self._fruitless += batch.num_preempted
        self.is_outgrown = self._lone > LONE_LIMIT
        if self._fruitless > FRUITLESS_LIMIT + 4 * self.scheduler.max_running or self.is_outgrown:
            self.is_livelocked = True
        return 0

    cdef bint _is_hemmed_in(self) noexcept nogil:
        """Return whether a request that ran alone was preempted for blocks held by requests that are behind it."""
        return (self.scheduler.tier is not None and self.scheduler.first_held() < 0
                and self.scheduler.num_running() == 0 and 0 < self.scheduler.loading < self.scheduler.waiting.size)

    cdef int _await_end(self, int32_t slot) except -1 nogil:
        """Note when a member is complete, with all but its last token in KV, or must leave the group."""
        cdef Sequence* sequence = self.scheduler.sequence(slot)
        cdef int64_t computed = sequence.prompt_tokens + self.delivery.target(sequence.row) - 1
        if self.kv.is_hybrid:
            computed = min(computed, self.kv.regular_until(slot))
        return self.finish.push(computed - sequence.offset, sequence.order, slot)

    cdef void _turn_to(self, int32_t group) noexcept nogil:
        if group != self.scheduler.group:
            self.scheduler.turn_to(group)
            self.finish.turn_to(group)

    cdef int _form_unusually(self, Batch* batch, int64_t now_ns) except -1 nogil:
        return self._form_multi_token(batch, now_ns) if self._is_multi_token else self._form_ahead(batch, now_ns)

    cdef int _start_unusually(self, Batch* batch) except -1 nogil:
        if self._is_multi_token:
            self.scheduler.begin_multi_token()
            if self.scheduler.overlaps:
                self.scheduler.fly(batch)
            return 0
        return self._start_ahead(batch)

    cdef int _form_multi_token(self, Batch* batch, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        self._form(batch, now_ns)
        if self.scheduler.dissolved.size > 0:           # each had a token at the end of the last iteration
            for i in range(self.scheduler.dissolved.size):
                self.delivery.last_token_ns[self.scheduler.dissolved.rows[i]] = now_ns
            self.scheduler.dissolved.size = 0
            self.finish.clear()
        return 0

    cdef int _form_ahead(self, Batch* batch, int64_t now_ns) except -1 nogil:
        if self.scheduler.num_groups > 1:
            self._turn_to(self.scheduler.group_in_turn())
            batch.group = self.scheduler.group
        while self.scheduler.lead > 0 and self.finish.size() > 0 and (
                self.finish.top_iteration() <= self.scheduler.iteration):
            self._part(self.finish.pop(), now_ns)
        self._form(batch, now_ns)
        if (batch.num_starved > 0 and not batch.stands_still) or (
                batch.shape.num_sequences == 0 and self.scheduler.num_members > 0):
            self._part_passed_over(batch)
        return 0

    cdef void _part_passed_over(self, const Batch* batch) noexcept nogil:
        cdef int32_t slot = self.scheduler.first_running()
        cdef Sequence* sequence
        while slot >= 0:
            sequence = self.scheduler.sequence(slot)
            if sequence.is_member and sequence.group == self.scheduler.group and (
                    sequence.is_starved or batch.shape.num_sequences == 0):
                sequence.is_starved = False
                self.finish.remove(slot)
                self._part(slot, batch.start_ns)
            slot = self.scheduler.next_running(slot)

    cdef int _start_ahead(self, Batch* batch) except -1 nogil:
        cdef int32_t i, slot, row
        self.scheduler.begin_ahead(batch)
        for i in range(batch.num_entries if self.scheduler.lead > 0 else 0):
            slot, row = batch.entries[i].slot, batch.entries[i].row
            if not batch.entries[i].is_partial and (
                    self.delivery.target(row) - self._requests[row].output_tokens
                    > self.scheduler.sequence(slot).num_placeholders) and self.scheduler.may_join(&batch.entries[i]):
                self.scheduler.join(slot)
                self._await_end(slot)
        return 0

    cdef void _part(self, int32_t slot, int64_t last_end_ns) noexcept nogil:
        cdef const Sequence* sequence = self.scheduler.sequence(slot)
        if sequence.num_placeholders == 0:              # else its last token was an entry's
            self.delivery.last_token_ns[sequence.row] = (
                self.scheduler.last_token_ns(slot, last_end_ns) - self._lateness.stood_ns - sequence.late_ns)
        self.scheduler.part(slot)

    cdef int _note_starvation(self, Batch* batch) except -1 nogil:
        """Delay the end and the next token of members without a turn."""
        cdef int32_t slot = self.scheduler.first_running()
        cdef Sequence* sequence
        while slot >= 0:
            sequence = self.scheduler.sequence(slot)
            if sequence.is_member and sequence.is_starved:
                self.finish.remove(slot)
                self._await_end(slot)
                put_off_token(&self._lateness, self.scheduler, slot, batch.duration_ns)
            slot = self.scheduler.next_running(slot)
        return 0

    # ---- the end of an iteration

    cdef int end(self, Batch* batch, int64_t executed_ns) except -1 nogil:
        cdef int64_t num_ended
        cdef int32_t i, slot, row
        self._finished.size = 0
        if self.scheduler.num_groups > 1:
            self._turn_to(batch.group)
            self.scheduler.note_end(batch)
        if batch.shape.num_sequences > 0:
            self._record(batch, executed_ns)
        if self.scheduler.grouping:
            self._end_turns(batch)
        if self._aborted.size > 0:
            self._collect_aborted()
        if not batch.stands_still:
            self.scheduler.end()
        num_ended = self.scheduler.iteration - self.scheduler.num_in_flight
        while self.finish.size() > 0 and self.finish.top_iteration() <= num_ended:
            slot = self.finish.pop()
            if self._is_multi_token:
                self._fall_out(slot, batch.end_ns)
                continue
            row = self.scheduler.sequence(slot).row
            if self.kv.is_hybrid and self.scheduler.outputs(slot) < self.delivery.target(row):
                self._part(slot, batch.end_ns)
                continue
            add_row(&self._finished, slot)
            self._requests[row].output_tokens = self.delivery.target(row)
            self._complete_request(row, batch.end_ns)
        for i in range(batch.num_entries):
            self._return(&batch.entries[i], batch.end_ns)
        if self._finished.size > 0:
            self._free_finished(batch.end_ns)
        self.drop_failed()
        if batch.shape.num_samples > 0:
            self._fruitless = 0
        if SIM_DEBUG and (self.row.iterations < OFTEN_CHECKED or self.row.iterations % OFTEN_CHECKED == 0):
            with gil:
                self.check()
        return 0

    cdef int end_ahead(self, RunAhead* run, Batch* batch, int32_t count) except -1 nogil:
        cdef int32_t i
        if self.recorder.wants_iterations and run.behind == 0:
            self.recorder.repeated(self.row.replica, batch, run.ends_ns, run.used_blocks, run.contexts, count, False)
        if self._is_multi_token:
            self._count_multi_token(run.ends_ns, run.start_ns, count, False)
        else:
            self._count_members(batch, False)       # some may be late; from then on gaps are one iteration
            for i in range(1, count):
                self.recorder.gaps.add(run.ends_ns[i] - run.ends_ns[i - 1] + self.delivery.gap_ns, batch.num_members)
            if self.recorder.wants_tokens and count > 1:
                write_tokens(self.scheduler, self.recorder, self.delivery, run.ends_ns + 1, count - 1, 1)
        add_used_blocks(run, count, &self.row.used_block_ns)
        self.row.peak_used_blocks = max(        # blocks only grow in number, but may have been freed before the second
            self.row.peak_used_blocks, max(run.used_blocks[0], run.used_blocks[count - 1]))
        if self.kv.is_hybrid:                   # unless members give some back
            self.row.peak_used_blocks = max(self.row.peak_used_blocks, most_used_blocks(run, count))
        self.row.busy_ns += run.ends_ns[count - 1] - run.start_ns
        self.row.decode_tokens += count * batch.shape.decode_tokens
        self.row.iterations += count
        self.recorder.iterations += count
        if self.recorder.wants_iterations and run.behind > 0:
            self._record_overlapping(run, batch, count)
        return self.scheduler.repeat_multi_token(count) if self._is_multi_token else self.scheduler.repeat(count)

    cdef int _record_overlapping(self, const RunAhead* run, Batch* batch, int32_t count) except -1 nogil:
        move_to(run, batch, 0)
        self.recorder.iteration(self.row.replica, batch)
        if count == 1:
            return 0
        move_to(run, batch, 1)
        return self.recorder.repeated(
            self.row.replica, batch, run.ends_ns + 1, run.used_blocks + 1,
            NULL if run.contexts == NULL else run.contexts + 1, count - 1, True)

    cdef int _count_multi_token(self, const int64_t* ends_ns, int64_t start_ns, int32_t count,
                                bint is_in_progress) except -1 nogil:
        cdef int64_t begins_ns = start_ns
        cdef int32_t num_members = self.scheduler.num_members, num_leaving = self._aborted.size if is_in_progress else 0
        cdef int32_t slot, i
        if is_in_progress and self.scheduler.num_in_flight <= self.scheduler.lead and num_members > 0:
            return fall_out_early(self, start_ns)
        for i in range(num_leaving):
            slot = self.scheduler.slot_of(self._aborted.rows[i])
            if slot >= 0 and self.scheduler.sequence(slot).is_member:
                num_members -= 1
        if num_members == 0:
            return 0
        for i in range(count if self.delivery.gap_ns == 0 else 0):
            self.recorder.gaps.add(ends_ns[i] - begins_ns, num_members)
            begins_ns = ends_ns[i]
        slot = -1
        if self.recorder.wants_tokens or self.delivery.gap_ns > 0:
            slot = self.scheduler.first_running()
        while slot >= 0:
            if self.scheduler.sequence(slot).is_member and (
                    num_leaving == 0 or not has_row(&self._aborted, self.scheduler.sequence(slot).row)):
                self._write_multi_token(slot, ends_ns, start_ns, count)
            slot = self.scheduler.next_running(slot)
        return 0

    cdef int _write_multi_token(self, int32_t slot, const int64_t* ends_ns, int64_t start_ns,
                                int32_t count) except -1 nogil:
        """Record the tokens of a member, and the gaps before them if they depend on their number."""
        cdef Turn turn = self.scheduler.multi_token.before(slot, self.scheduler.iteration)
        cdef int32_t outputs = self.scheduler.outputs(slot), i
        for i in range(count):
            outputs += turn.tokens
            if self.delivery.gap_ns > 0:
                self.recorder.gaps.add(ends_ns[i] - start_ns + self.delivery.gap_ns * turn.tokens, 1)
                start_ns = ends_ns[i]
            if self.recorder.wants_tokens:
                self.recorder.token(turn.row, self.delivery.observed_ns(ends_ns[i], outputs), turn.tokens)
            self.scheduler.multi_token.next(&turn)
        return 0

    cdef int64_t num_rounds_alike(self, Rounds* rounds, Pipeline* pipeline) noexcept nogil:
        cdef int32_t depth = pipeline.num_in_flight, members = 0, k
        cdef int64_t most = INT64_MAX, changes
        cdef Group group
        for k in range(rounds.num_turns):
            group = self.scheduler.group_at(rounds.turns[k].group)
            rounds.turns[k].phase = group.phase
            members += group.num_members
            # The group's batches are alike up to index `changes`, the first in which a member ends or parts.
            changes = next_of_turn(rounds, k, depth) + rounds.num_turns * (
                self.finish.top_iteration_of(rounds.turns[k].group) - group.iteration)
            most = min(most, changes - depth + 1)
        return most if members == self.scheduler.num_running() and self.scheduler.repeats() else 1

    cdef int end_rounds(self, RunAhead* run, Rounds* rounds, Pipeline* pipeline, int32_t count) except -1 nogil:
        cdef int32_t depth = pipeline.num_in_flight, num_turns = rounds.num_turns, k, ended, first
        if self.recorder.wants_iterations or self.recorder.wants_tokens:
            self._write_rounds(run, rounds, pipeline, count)
        self._take_rounds(run, rounds, pipeline, count)
        for k in range(num_turns):
            ended = (count - k + num_turns - 1) // num_turns if count > k else 0
            first = next_of_turn(rounds, k, depth)          # first batch not in flight before; now `count` more are
            self.scheduler.repeat_of(
                rounds.turns[k].group, ended,
                (depth + count - first + num_turns - 1) // num_turns if depth + count > first else 0,
                run.ends_ns[k + (ended - 1) * num_turns] if ended > 0 else 0)
        drop_rounds(rounds, run, pipeline, count)
        for k in range(depth):
            self.scheduler.fly(batch_at(pipeline, k))
        self.finish.turn_to(self.scheduler.group)
        return 0

    cdef int _take_rounds(self, const RunAhead* run, Rounds* rounds, Pipeline* pipeline, int32_t count) except -1 nogil:
        """Count the results of iterations, and give blocks to the iterations that follow them."""
        cdef int32_t num_turns = rounds.num_turns, num_stages = pipeline.num_stages, block_size = self.kv.block_size
        cdef int32_t k = 0, following = pipeline.num_in_flight % num_turns, i, members, used, peak = 0
        cdef int64_t before_ns = pipeline.last_end_ns, end_ns, executed_ns, gap_ns, busy_ns = 0, tokens = 0
        cdef double block_ns = self.row.used_block_ns
        for i in range(num_turns):
            rounds.turns[i].phase = self.scheduler.group_at(rounds.turns[i].group).phase
        for i in range(count):
            members, used, end_ns = rounds.turns[k].shape.num_sequences, run.used_blocks[i], run.ends_ns[i]
            gap_ns = end_ns - (
                run.ends_ns[i - num_turns] if i >= num_turns else self._token_before_ns(rounds, pipeline, i))
            self.recorder.gaps.add(gap_ns + self.delivery.gap_ns, members)
            executed_ns = end_ns - max(before_ns, rounds.visits[i * num_stages].start_ns)
            before_ns = end_ns
            busy_ns += executed_ns
            block_ns += <double>used * <double>executed_ns
            peak = max(peak, used)
            tokens += members
            self.kv.step_of(rounds.turns[following].group, next_phase(rounds, following, block_size))
            k = k + 1 if k + 1 < num_turns else 0
            following = following + 1 if following + 1 < num_turns else 0
        self.kv.turn_to(self.scheduler.group)
        self.row.busy_ns += busy_ns
        self.row.used_block_ns = block_ns
        self.row.peak_used_blocks = max(self.row.peak_used_blocks, peak)
        self.row.decode_tokens += tokens
        self.row.iterations += count
        self.recorder.iterations += count
        return 0

    cdef int64_t _token_before_ns(self, const Rounds* rounds, Pipeline* pipeline, int32_t turn) noexcept nogil:
        """Return when members of the group of a turn had their last token before the run."""
        cdef Group group = self.scheduler.group_at(rounds.turns[turn].group)
        return group.ended_ns if pipeline.turn_interval > 0 else batch_at(pipeline, turn).start_ns

    cdef int _write_rounds(self, const RunAhead* run, const Rounds* rounds, Pipeline* pipeline,
                           int32_t count) except -1 nogil:
        cdef int32_t i
        for i in range(count if self.recorder.wants_tokens else 0):
            self._turn_to(rounds.turns[i % rounds.num_turns].group)
            write_tokens(
                self.scheduler, self.recorder, self.delivery, &run.ends_ns[i], 1, i // rounds.num_turns)
        for i in range(count if self.recorder.wants_iterations else 0):
            move_to_round(rounds, run, pipeline, spare_batch(pipeline), i)
            self.recorder.iteration(self.row.replica, spare_batch(pipeline))
        return 0

    cdef int _return(self, const Entry* entry, int64_t now_ns) except -1 nogil:
        """Apply the result of an entry: tokens, if it reached the end of its text."""
        cdef Sequence* sequence = self.scheduler.sequence(entry.slot)
        cdef int32_t row = entry.row, accepted = 0, sampled = 0, left, kept = self._requests[entry.row].output_tokens
        cdef bint is_stale = self.scheduler.stale_tokens(row) > 0
        if is_stale:
            self.scheduler.settle_stale(row, entry.tokens)
        if self._requests[row].status >= COMPLETED or not (
                is_stale or (sequence.row == row and sequence.order == entry.order)):
            return 0
        if not entry.is_partial:
            accepted = self._accepted(entry) if entry.drafts > 0 else 0
            left = self.delivery.target(row) - kept
            sampled = min(accepted + 1, left)
            self.delivery.deliver(row, sampled, now_ns)
            if is_stale:                                # it waits, and its text has grown
                self.scheduler.waiting.tokens += self._requests[row].output_tokens - kept
        if is_stale:
            if sampled > 0 and sampled == left:
                self.scheduler.waiting.remove(row)
                self._complete_request(row, now_ns)
            return 0
        sequence.in_flight -= entry.tokens
        if self._tells_chunks and entry.is_partial:
            self.scheduler.tier.chunk_ended(row, sequence.num_computed - sequence.in_flight)
        self.scheduler.update(
            entry, sampled, entry.drafts - accepted if sampled > 0 else 0, sampled > 0 and sampled < left)
        if sampled == 0:
            return 0
        if sampled == left:
            self._complete_request(row, now_ns)
            add_row(&self._finished, entry.slot)
        elif self._is_multi_token:
            self._join_multi_token(entry, sampled, left - sampled)
        elif self.scheduler.grouping and self.scheduler.lead == 0 and self.scheduler.may_join(entry):
            self.scheduler.join(entry.slot)
            note_joined(&self._lateness, self.scheduler, entry.slot)
            self._await_end(entry.slot)
        elif sequence.is_member:                        # it joined after its batch was formed
            note_joined(&self._lateness, self.scheduler, entry.slot)
        return 0

    cdef int32_t _accepted(self, const Entry* entry) noexcept nogil:
        """Return how many drafts of an entry are accepted, and count them."""
        cdef int32_t accepted = min(self._acceptance.next(entry.row), entry.drafts), verified = entry.drafts
        if entry.is_admission:
            return 0                                    # padding, not drafts of a drafter
        if self.scheduler.grammar_drafts is not None:   # async: places were scheduled before the drafts were known
            verified = self.scheduler.grammar_drafts.admit(
                entry.row, <int64_t>self._requests[entry.row].prompt_tokens + self._requests[entry.row].output_tokens,
                entry.drafts)
            accepted = min(accepted, verified)
        self.drafts.count(verified, accepted)
        return accepted

    cdef int take_seeds(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i, slot, row
        for i in range(self.scheduler.seeded.size):
            slot = self.scheduler.seeded.rows[i]
            row = self.scheduler.sequence(slot).row
            if self.take_first(row, now_ns):
                self.scheduler.drop_held(row)
            else:
                self.scheduler.take_token(slot)
        self.scheduler.seeded.size = 0
        return 0

    cdef bint take_first(self, int32_t row, int64_t now_ns) except -1 nogil:
        self.delivery.deliver(row, 1, now_ns)
        if self.delivery.target(row) > 1:
            return False
        self._complete_request(row, now_ns)
        return True

    cdef int _join_multi_token(self, const Entry* entry, int32_t sampled, int32_t left) except -1 nogil:
        cdef int64_t end = self.scheduler.join_multi_token(entry, sampled, left)
        return self.finish.push(end - self.scheduler.lead, entry.order, entry.slot) if end >= 0 else 0

    cdef int _fall_out(self, int32_t slot, int64_t now_ns) except -1 nogil:
        self.delivery.last_token_ns[self.scheduler.sequence(slot).row] = now_ns
        return self.scheduler.fall_out(slot)

    cdef void _complete_request(self, int32_t row, int64_t now_ns) noexcept nogil:
        self._lone = 0
        if self.delivery.rejects(row):
            self.delivery.leave(row, REJECTED, now_ns)
            return
        self.delivery.leave(row, COMPLETED, now_ns)
        self.row.completed += 1

    cdef int _free_finished(self, int64_t now_ns) except -1 nogil:
        """Free the finished sequences, except for blocks that a tier reads, in scheduled order."""
        cdef int32_t i
        if self._finished.size > 1:
            self.scheduler.sort_finished(self._finished.rows, self._finished.size)
        for i in range(self._finished.size):
            if not self.scheduler.keep(self._finished.rows[i], now_ns):
                self.scheduler.finish(self._finished.rows[i])
        return 0

    cdef int settle(self) except -1 nogil:
        cdef int32_t slot = self.scheduler.first_running()
        cdef const Sequence* sequence
        while slot >= 0:
            sequence = self.scheduler.sequence(slot)
            if sequence.is_member:
                self._requests[sequence.row].output_tokens = self.scheduler.outputs(slot)
                if self._is_multi_token:
                    self.scheduler.count_multi_token(slot)
            slot = self.scheduler.next_running(slot)
        return 0

    # ---- outside interventions

    cdef void delay(self, const Batch* batch, int64_t pause_ns) noexcept nogil:
        cdef int32_t slot = self.scheduler.first_running() if batch.num_starved > 0 and not batch.stands_still else -1
        cdef Sequence* sequence
        if batch.shape.num_sequences > 0 and not self.scheduler.ends_at_start:      # the batch's end will count it
            self._pauses_ns = pause_ns + (self._pauses_ns if self._paused_in == self.row.iterations else 0)
            self._paused_in, self._paused_blocks = self.row.iterations, batch.used_blocks
            self.row.busy_ns -= pause_ns
            self.row.used_block_ns -= <double>batch.used_blocks * <double>pause_ns
        while slot >= 0:                                # members without a turn are charged when an iteration begins
            sequence = self.scheduler.sequence(slot)
            if sequence.is_member and sequence.is_starved:
                sequence.late_ns += pause_ns
            slot = self.scheduler.next_running(slot)

    cdef void forget_pauses(self) noexcept nogil:
        if self._pauses_ns > 0 and self._paused_in == self.row.iterations:
            self.row.busy_ns += self._pauses_ns
            self.row.used_block_ns += <double>self._paused_blocks * <double>self._pauses_ns
        self._pauses_ns = 0

    cdef int empty(self, const Batch* executing, int64_t last_end_ns, RowList* rows) except -1 nogil:
        cdef int32_t slot, row
        self.forget_pauses()
        if self._aborted.size > 0:
            self._collect_aborted()
        while self.scheduler.num_running() > 0:
            slot = self.scheduler.first_running()
            add_row(rows, self.scheduler.sequence(slot).row)
            if self.scheduler.sequence(slot).is_member:
                self._write_back(slot, executing, last_end_ns)
            self.scheduler.drop(slot)
        self.scheduler.drop_all_held(rows)
        while self.scheduler.waiting.size > 0:
            row = self.scheduler.waiting.pop()
            if self.scheduler.stale_tokens(row) > 0:
                self.scheduler.settle_stale(row, self.scheduler.stale_tokens(row))
            self.scheduler.gives_up(row)
            add_row(rows, row)
        self.scheduler.failed.size = 0                  # other replicas may serve them
        self.finish.clear()
        self.scheduler.forget_flight()
        forget_late(&self._lateness)
        self._fruitless = 0
        return 0

    cdef int _write_back(self, int32_t slot, const Batch* executing, int64_t last_end_ns) except -1 nogil:
        """Write back the tokens of a member, and the time of the last one, before the iteration in progress."""
        cdef const Sequence* sequence = self.scheduler.sequence(slot)
        cdef bint is_starved = executing != NULL and executing.num_starved > 0 and sequence.is_starved
        cdef int64_t last_ns = executing.end_ns - executing.duration_ns if executing != NULL else last_end_ns
        self._requests[sequence.row].output_tokens = self.scheduler.outputs(slot)
        if sequence.num_placeholders > 0:
            return 0                                    # its last token was an entry's
        if self.scheduler.overlaps:
            last_ns = self.scheduler.last_token_ns(slot, last_end_ns)
        self.delivery.last_token_ns[sequence.row] = (
            last_ns - self._lateness.stood_ns - sequence.late_ns + (executing.duration_ns if is_starved else 0))
        return 0

    cdef int forget(self) except -1:
        if self.scheduler.tier is not None:
            self.scheduler.tier.fail()
        self.kv.forget()
        self.scheduler.forget()
        return 0

    cdef int take_off(self, int32_t slot, int64_t last_end_ns) except -1 nogil:
        cdef Sequence* sequence = self.scheduler.sequence(slot)
        if sequence.is_member:
            self.finish.remove(slot)
            if sequence.num_placeholders == 0:
                self.delivery.last_token_ns[sequence.row] = (
                    self.scheduler.last_token_ns(slot, last_end_ns) - self._lateness.stood_ns - sequence.late_ns)
            sequence.late_ns = 0
        return self.scheduler.park(slot)

    cdef int receive(self, int32_t slot, const Sequence* sequence, int64_t now_ns) except -1 nogil:
        self.row.requests += 1
        if self._legs is not None:
            self._legs.enqueued(sequence.row, now_ns)
            self._legs.scheduled(sequence.row, 0, 0, now_ns)
        return self.scheduler.receive(slot, sequence)

    cdef int64_t settled_tokens(self, int32_t slot) noexcept nogil:
        cdef const Sequence* sequence = self.scheduler.sequence(slot)
        cdef int32_t in_flight = sequence.in_flight
        if sequence.is_member:
            in_flight += self.scheduler.turns_in_flight(slot) * self.scheduler.turn_tokens
        return self.scheduler.computed(slot) - in_flight
