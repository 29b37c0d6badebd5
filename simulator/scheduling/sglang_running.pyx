"""Running requests in SGLang's scheduler: decodes, results, retraction.

Source: sglang 0.5.23, managers/schedule_batch.py (retract_decode, release_req, check_decode_mem), managers/scheduler.py
(update_running_batch, _reqs_finishing_inflight) and scheduler_components/batch_result_processor.py; with drafts
mem_cache/allocation_sizing.py (page_aligned_decode_alloc_lens), mem_cache/allocation.py (alloc_for_spec_decode).
"""
from libc.stdint cimport int16_t
from libc.stdlib cimport free
from libc.string cimport memset

from simulator.core.memory cimport resize
from simulator.core.row_list cimport has_row
from simulator.scheduling.base cimport Sequence

cdef enum:
    RETRACT_STEPS = 20          # tokens to free per remaining request in a retraction; SGLANG_RETRACT_DECODE_STEPS


cdef class SglangRunning(Scheduler):
    """Base of `Sglang`; see sglang_running.pxd."""

    def __dealloc__(self):
        free(self._decoding.rows)
        free(self._prefilled.rows)
        free(self._sorted.rows)
        free(self._fresh.rows)
        free(self._lost.rows)
        free(self._progress)
        free(self._ignores)

    cdef int _vacate(self, int32_t slot, bint returns) except -1 nogil:
        self._forget_slot(slot)
        return Scheduler._vacate(self, slot, returns)

    cdef int park(self, int32_t slot) except -1 nogil:
        self._forget_slot(slot)
        return Scheduler.park(self, slot)

    cdef int _forget_slot(self, int32_t slot) except -1 nogil:
        self._somebody_left = True
        if self._sequences[slot].is_member or self._decoding.size + self._prefilled.size > self.num_members:
            self._unlist(slot)                          # else the lists hold only members
            drop_row(&self._prefilled, slot)
        if self._chunked == slot:
            self._chunked = -1
        return 0

    cdef int join(self, int32_t slot) except -1 nogil:
        Scheduler.join(self, slot)
        return add_row(&self._fresh, slot) if self.lead > 0 else self._note_owing(slot)

    cdef void leave(self, int32_t slot) noexcept nogil:
        self._owing.drop(slot)
        drop_row(&self._fresh, slot)
        Scheduler.leave(self, slot)

    cdef int _note_owing(self, int32_t slot) except -1 nogil:
        cdef const Sequence* sequence = &self._sequences[slot]
        cdef int64_t ends = self._queue.most(sequence.row) + sequence.prompt_tokens - 1 - sequence.offset
        return self._owing.put(slot, self.iteration - self.num_in_flight, ends, self._ignores_end(sequence.row))

    cdef int update(self, const Entry* entry, int32_t sampled, int32_t rejected, bint goes_on) except -1 nogil:
        cdef Sequence* sequence = &self._sequences[entry.slot]
        if sampled == 0:
            return 0
        sequence.num_tokens += sampled
        if self._overlaps_batches:
            sequence.num_placeholders -= sampled + rejected
        if self._verified > 0:
            self._commit(entry, rejected, goes_on)
        if self._progress[entry.slot].pending > 0:      # decodes are published by `finish`, after the batch's prompts
            if not goes_on and self._is_whole:
                self._publish_all(entry.slot)
            else:
                self._publish(entry.slot, self._progress[entry.slot].pending)
        if sequence.is_member:
            drop_row(&self._fresh, entry.slot)
            self._note_owing(entry.slot)
        return 0

    cdef void _commit(self, const Entry* entry, int32_t rejected, bint goes_on) noexcept nogil:
        """Count the tokens that a decode leaves in KV: the accepted ones, and the one in front.

        The last token of a text in a batch with prompts does not count, as upstream.
        """
        self._sequences[entry.slot].num_computed -= rejected
        if self._progress[entry.slot].pending > 0:      # a prompt, which counts since it was scheduled
            return
        if entry.drafts > 0:
            self._progress[entry.slot].committed += entry.drafts - rejected + 1
        elif goes_on:
            self._progress[entry.slot].committed += 1

    cdef int finish(self, int32_t slot) except -1 nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        if self._pages.tokens(slot) > 0:                # else `update` has published its text
            sequence.num_tokens = sequence.prompt_tokens + self._requests[sequence.row].output_tokens
            if sequence.is_member:
                self.kv.settle(slot, self.computed(slot))
                sequence.scheduled = 1                  # scheduled individually
            self._publish_all(slot)
        return self._vacate(slot, False)

    cdef void sort_finished(self, int32_t* slots, int32_t count) noexcept nogil:
        """Sort ending requests by their places in the running batch: a mixed batch has its prompts first."""
        cdef int32_t i, j, slot
        for i in range(1, count):
            slot = slots[i]
            j = i
            while j > 0 and self._progress[slots[j - 1]].stamp > self._progress[slot].stamp:
                slots[j] = slots[j - 1]
                j -= 1
            slots[j] = slot

    cdef int _publish(self, int32_t slot, int64_t tokens) except -1 nogil:
        cdef const Sequence* sequence = &self._sequences[slot]
        self._progress[slot].published, self._progress[slot].pending = tokens, 0
        return self._pages.publish(slot, sequence.row, tokens, sequence.prompt_tokens,
                                   self._demands[sequence.row].priority if self._by_priority else 0)

    cdef int _publish_all(self, int32_t slot) except -1 nogil:
        """Publish the computed text of a complete request in the tree, and free its other pages."""
        cdef int64_t computed = self._progress[slot].committed if self._verified > 0 else self._pages.tokens(slot)
        self._publish(slot, min(computed, <int64_t>self._sequences[slot].num_tokens))
        return self._pages.release(slot, False)

    cdef void _cut_short(self, int32_t slot) noexcept nogil:
        """Let a cut prompt decode with the KV it has, if a later one of its batch goes on instead."""
        cdef Sequence* sequence = &self._sequences[slot]
        cdef int32_t missing = sequence.num_tokens - sequence.num_computed - sequence.scheduled
        if missing > 0:
            sequence.num_tokens -= missing
            sequence.prompt_tokens -= missing

    cdef int _put_back(self, Batch* batch, int32_t slot, int64_t left) except -1 nogil:
        """Put a sequence back in the queue; KV that is not in the tree and a token in flight are lost."""
        cdef int32_t row = self._row(slot)
        cdef bint had_left = self._somebody_left
        self.preempt(slot, batch)
        self._somebody_left = had_left
        if self._stale != NULL:
            self._stale[row] = 0
        self._pages.make_room(left * RETRACT_STEPS)
        self._queue.candidate(row).prefix = self._queue.candidate(row).matched = 0
        return 0

    cdef double _owed_by_decoding(self) noexcept nogil:
        cdef double owed = 0
        cdef int32_t i
        for i in range(self._decoding.size):
            owed += self._owed(self._decoding.rows[i])
        return owed

    cdef double _owed_about(self) noexcept nogil:
        cdef double owed = self._owed_by_members()
        cdef int32_t others = self._decoding.size - self.num_members, i
        cdef bint decode_all = others == self._num_prefilling - (self._chunked >= 0)
        for i in range(self._num_prefilling if others > 0 else 0):
            if self._prefilling[i] != self._chunked and (
                    decode_all or self._place_of(self._prefilling[i]) < self._decoding.size):
                owed += self._owed(self._prefilling[i])
        return owed

    cdef double _owed_by_members(self) noexcept nogil:
        cdef int64_t iteration = self.iteration - self.num_in_flight
        cdef double owed = <double>self._owing.in_full(iteration) + self._ratio * <double>self._owing.in_part(iteration)
        cdef int32_t i
        for i in range(self._fresh.size):
            owed += self._owed(self._fresh.rows[i])
        return owed

    cdef bint _leave_out_ending(self) except -1 nogil:
        """Remove requests that end with the batch that executes; return whether there were any."""
        cdef int32_t before = self._decoding.size, kept = 0, i, slot
        if not self._overlaps_batches or self._decoding.size == self.num_members:     # ending ones are no members
            return False
        for i in range(self._num_prefilling if self.grouping else 0):
            if self._is_ending(self._prefilling[i]):
                self._unlist(self._prefilling[i])
        for i in range(0 if self.grouping else before):
            slot = self._decoding.rows[i]
            self._decoding.rows[kept] = slot
            kept += not self._is_ending(slot)
        if not self.grouping:
            self._decoding.size = kept
        if self._decoding.size == before:
            return False
        self._is_full = False
        return True

    cdef bint _decodes_fit(self, const RowList* slots) except -1 nogil:
        cdef int64_t need = self.kv.due(self.phase) if self.num_members > 0 else 0
        cdef int32_t i
        for i in range(slots.size if slots.size > self.num_members else 0):
            if self._verified > 0:
                need += blocks_for(self._roomy(slots.rows[i]), self.kv.block_size) - blocks_for(
                    self._pages.tokens(slots.rows[i]), self.kv.block_size)
            else:
                need += not self._sequences[slots.rows[i]].is_member and (
                    self._sequences[slots.rows[i]].num_computed % self.kv.block_size == 0)
        self._pages.make_room(need * self.kv.block_size)
        return self._pages.blank_tokens() >= need * self.kv.block_size

    cdef int _decode_all(self, Batch* batch) except -1 nogil:
        """Schedule a token for each decoding request."""
        cdef int32_t i, slot
        if self._verified > 0:
            return self._verify_all(batch)
        self._pages.make_room(<int64_t>self._decoding.size * self.kv.block_size)
        if self.num_members > 0:                        # all members decode
            self.kv.step_begin(self.phase)
            batch.num_members = self.num_members
            batch.shape.context_tokens = self.member_tokens
        for i in range(self._decoding.size if self.num_members < self._decoding.size else 0):
            slot = self._decoding.rows[i]
            if not self._sequences[slot].is_member:
                self._pages.take(slot, self._pages.tokens(slot) + 1)
                self._sequences[slot].scheduled = 1
                self.add_entry(batch, slot)
        return 0

    cdef int _verify_all(self, Batch* batch) except -1 nogil:
        """Schedule each decoding request with its drafts; beside prompts with a token alone."""
        cdef bint is_mixed = batch.num_entries > 0
        cdef int64_t tokens = 0
        cdef int32_t i, slot
        cdef Sequence* sequence
        for i in range(self._decoding.size):
            tokens += self._roomy(self._decoding.rows[i]) - self._pages.tokens(self._decoding.rows[i])
        if tokens > 0:
            self._pages.make_room(tokens + (
                <int64_t>self._decoding.size * self.kv.block_size if self.kv.block_size > 1 else 0))
        for i in range(self._decoding.size):
            slot = self._decoding.rows[i]
            sequence = &self._sequences[slot]
            self._pages.take(slot, self._roomy(slot))
            sequence.scheduled = 1 if is_mixed else self._verified
            sequence.scheduled_drafts = <int16_t>(sequence.scheduled - 1)
            self.add_entry(batch, slot)
        return 0

    cdef int _decode(self, Batch* batch) except -1 nogil:
        cdef int32_t i
        cdef bint left_out
        for i in range(self._decoding.size + 1):
            if i == self._decoding.size:
                return 0                                # no answer may have a token
            if self._queue.most(self._row(self._decoding.rows[i])) > 0:
                break
        left_out = self._leave_out_ending()
        if self._decoding.size == 0:
            self._is_full = False
            return 0
        if self._decodes_fit(&self._decoding):
            self._ratio = max(self._ratio - self._decay, self._least_ratio)
        elif left_out:
            return 0                                    # the ending requests make room
        elif not self._give_up_chunk(batch):
            self._retract(batch)
        return self._decode_all(batch) if self._decoding.size > 0 else 0

    cdef bint _give_up_chunk(self, Batch* batch) except -1 nogil:
        """Put back the unfinished prompt, if allowed; return whether each decoding request then has room for a
        token."""
        cdef int32_t row
        if self._is_upstream or self._chunked < 0:
            return False
        row = self._row(self._chunked)
        self._put_back(batch, self._chunked, self._decoding.size)
        self.enqueue(row)
        return self._decodes_fit(&self._decoding)

    cdef int _retract(self, Batch* batch) except -1 nogil:
        """Put requests back until the others have room for a token each."""
        cdef int32_t slot, row, lost = -1, i, first = batch.num_preempted
        cdef int64_t outputs = 0, most = 0
        self._is_full = False
        self._sort_running(False)
        while self._sorted.size > 1 and (batch.num_preempted == first or not self._decodes_fit(&self._sorted)):
            self._sorted.size -= 1
            self._put_back(batch, self._sorted.rows[self._sorted.size], self._sorted.size)
        if self._sorted.size == 1 and not self._decodes_fit(&self._sorted):
            slot, row = self._sorted.rows[0], self._row(self._sorted.rows[0])
            self._sorted.size = 0
            self._put_back(batch, slot, 0)              # it can never go on
            batch.preempted[batch.num_preempted - 1].freed_blocks = 0
            lost = row
            add_row(&self._lost, row)
            Scheduler.enqueue(self, row)
            add_row(&self.failed, row)
        self._decoding.size = 0
        for i in range(self._sorted.size):
            row = self._row(self._sorted.rows[i])
            self._list(self._sorted.rows[i])
            outputs += self._written(self._sorted.rows[i])
            most += self._queue.most(row)
        self._ratio = min(1.0, <double>(outputs + RETRACT_STEPS * self._sorted.size) / <double>(most + 1))
        for i in range(first, batch.num_preempted):
            if batch.preempted[i].row != lost:
                self.enqueue(batch.preempted[i].row)
        return 0

    def check(self):
        """See Scheduler."""
        Scheduler.check(self)
        cdef int32_t slot
        cdef double owed = self._owed_by_members(), exact = 0
        for slot in self.slots():
            if self._sequences[slot].is_member:
                exact += self._owed(slot)
                if not (has_row(&self._decoding, slot) or has_row(&self._prefilled, slot)):
                    raise RuntimeError(f"slot {slot} is a member, but in no list of decodes or prefilled slots")
        if abs(owed - exact) > slack_of(exact + self.num_members):
            raise RuntimeError(f"members are expected to need {exact} tokens, summed up ahead {owed}")

    def lost_rows(self):
        """See Scheduler."""
        return [self._lost.rows[i] for i in range(self._lost.size)]

    cdef int _sort_running(self, bint makes_room) except -1 nogil:
        cdef int32_t i, j, slot
        self._sorted.size = 0
        for i in range(self._decoding.size):
            slot = self._decoding.rows[i]
            add_row(&self._sorted, slot)
            j = i
            while j > 0 and (self._goes_sooner(slot, self._sorted.rows[j - 1]) if makes_room
                             else self._stays_longer(slot, self._sorted.rows[j - 1])):
                self._sorted.rows[j] = self._sorted.rows[j - 1]
                j -= 1
            self._sorted.rows[j] = slot
        return 0

    cdef bint _goes_sooner(self, int32_t slot, int32_t other) noexcept nogil:
        cdef int64_t mine = self._preference(self._row(slot)), theirs = self._preference(self._row(other))
        if mine != theirs:
            return mine < theirs
        return self._queue.candidate(self._row(slot)).entry > self._queue.candidate(self._row(other)).entry

    cdef bint _stays_longer(self, int32_t slot, int32_t other) noexcept nogil:
        cdef int64_t mine = self._preference(self._row(slot)), theirs = self._preference(self._row(other))
        if self._retracts_by_priority and mine != theirs:
            return mine > theirs
        mine, theirs = self._written(slot), self._written(other)
        if mine != theirs:
            return mine > theirs
        return self._queue.prompt(self._row(slot)) < self._queue.prompt(self._row(other))

    cdef int _grow_own(self) except -1 nogil:
        resize(&self._progress, self.num_slots * sizeof(Progress))
        memset(self._progress + self._room, 0, (self.num_slots - self._room) * sizeof(Progress))
        self._owing.reserve(self.num_slots)
        self._room = self.num_slots
        return 0
