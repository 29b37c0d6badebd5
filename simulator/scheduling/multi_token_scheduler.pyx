"""Schedulers with members that may verify drafts, and then gain several tokens a turn."""
from libc.stdint cimport INT32_MAX, int16_t
from libc.string cimport memmove, memset

from simulator.core.row_list cimport add_row
from simulator.domain.acceptance cimport Acceptance
from simulator.domain.draft_counts cimport DraftCounts
from simulator.domain.iteration cimport Batch, Entry, insert_entry
from simulator.kv.base cimport blocks_for
from simulator.scheduling.base cimport Sequence
from simulator.scheduling.multi_token_cohort cimport MultiTokenCohort, Turn


cdef inline void drop_entry(Batch* batch, int32_t index) noexcept nogil:
    """Remove an entry, by its index."""
    batch.num_entries -= 1
    memmove(&batch.entries[index], &batch.entries[index + 1], (batch.num_entries - index) * sizeof(Entry))


cdef int32_t regular_entry(MultiTokenScheduler self, int64_t order) noexcept nogil:
    """Return the index of a sequence's entry in the batch in flight; -1: it has no regular turn there."""
    cdef const Batch* batch = self._in_flight[0]
    cdef int32_t i = batch.num_entries - 1 if self.num_in_flight == self.lead else -1
    while i >= 0 and batch.entries[i].order != order:
        i -= 1
    return i if i >= 0 and batch.entries[i].drafts + 1 == self.turn_tokens else -1


cdef void make_entries(MultiTokenScheduler self, int32_t slot) noexcept nogil:
    """Make the turns in flight of a sequence, which is no member any more, entries of their batches."""
    cdef Sequence* sequence = &self._sequences[slot]
    cdef int32_t i
    cdef Entry entry
    memset(&entry, 0, sizeof(Entry))
    entry.order, entry.slot, entry.row = sequence.order, slot, sequence.row
    entry.tokens, entry.drafts = self.turn_tokens, self.turn_tokens - 1
    for i in range(self.num_in_flight):
        insert_entry(self._in_flight[i], &entry)
        self._in_flight[i].num_members -= 1
    sequence.num_placeholders = sequence.in_flight = self.num_in_flight * self.turn_tokens
    sequence.num_computed += sequence.in_flight


cdef class MultiTokenScheduler(InOrder):
    """Base of schedulers with speculative decoding.

    A policy that calls `verify` may leave all regular turns of members to the group, and calls `dissolve` if a member
    cannot have all its tokens or blocks.
    """

    cdef int verify(self, int32_t drafts, int32_t lookahead, int64_t max_model_len, int64_t budget) except -1:
        self.turn_tokens = 1 + drafts
        self.kv.ahead_tokens = drafts + lookahead
        self._most_computed = max_model_len - 1 - drafts - max(lookahead, 1)
        self._most_running = <int32_t>min(budget // self.turn_tokens, <int64_t>INT32_MAX)
        return 0

    cdef int verify_by(self, Acceptance acceptance, DraftCounts counts) except -1:
        self.kv.unknown_tokens = self.kv.hashes_ahead
        if self.lead > 0:               # the turn in flight may bring all its tokens
            self.kv.ahead_tokens += self.turn_tokens
            self._most_computed -= self.turn_tokens
        self.multi_token = MultiTokenCohort(acceptance, counts, self.kv, self._most_computed)
        return self.multi_token.reserve(self.num_slots)

    cdef int64_t join_multi_token(self, const Entry* entry, int32_t sampled, int32_t left) except -2 nogil:
        cdef Sequence* sequence = &self._sequences[entry.slot]
        cdef int64_t computed = sequence.num_computed - sampled - self.lead * self.turn_tokens, end
        cdef int32_t in_flight = 0
        if self.grammar_drafts is not None and self.grammar_drafts.has_grammar(entry.row):
            return -1                   # its turns are not alike
        if (entry.drafts + 1 < self.turn_tokens or entry.is_admission or self._running.size > self._most_running
                or not self.kv.may_join_multi_token(entry.slot) or self.kv.owned(entry.slot)
                != blocks_for(computed + 1 + self.kv.ahead_tokens, self.kv.block_size)):
            return -1
        if self.lead > 0:
            in_flight = regular_entry(self, entry.order)
        if in_flight < 0 or left <= self.lead:
            return -1
        # With `lead`, it leaves before a batch that the policy may know to be its last.
        end = self.multi_token.join(entry.slot, entry.row, computed, self.iteration, left - self.lead)
        if end == self.iteration:
            return -1
        if self.lead > 0:               # the turn in flight is one of the group's
            drop_entry(self._in_flight[0], in_flight)
            self._in_flight[0].num_members += 1
            sequence.num_placeholders = sequence.in_flight = 0
        self._drop_prefilling(entry.slot)
        sequence.is_member = True
        sequence.scheduled = 0
        self.num_members += 1
        if self.tally is not None:
            self.tally.join(entry.row, self.group)
        self.member_tokens += sequence.num_computed + self.turn_tokens      # a turn in flight counts in full
        if sequence.order > self._last_member_order:
            self._last_member_order = sequence.order
        return end

    cdef void leave_multi_token(self, int32_t slot) noexcept nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        cdef Turn turn = self.multi_token.leave(slot, self.iteration)
        cdef bint has_ended = self.num_in_flight <= self.lead           # else the turn is discarded, or an entry's
        sequence.is_member = False
        self.num_members -= 1
        if self.tally is not None:
            self.tally.leave(turn.row, self.group)
        self.member_tokens -= turn.computed + turn.tokens + (1 + self.lead) * self.turn_tokens
        self.kv.settle(slot, turn.computed + 1)
        sequence.num_computed = <int32_t>turn.computed + (turn.tokens if has_ended else 0)
        sequence.num_tokens = sequence.num_computed + 1
        sequence.num_drafts = <int16_t>(self.turn_tokens - 1)
        self.multi_token.note_steps(turn.row, turn.step + has_ended)
        self.multi_token.count(slot, &turn, has_ended)
        self._requests[turn.row].output_tokens = sequence.num_tokens - sequence.prompt_tokens
        if self.lead > 0:
            make_entries(self, slot)

    cdef void part(self, int32_t slot) noexcept nogil:
        if self.multi_token is None:
            InOrder.part(self, slot)
            return
        self.leave(slot)
        self._add_prefilling(slot)

    cdef void fly(self, Batch* batch) noexcept nogil:
        if self.multi_token is None:
            InOrder.fly(self, batch)
            return
        self._in_flight[1] = self._in_flight[0]
        self._in_flight[0] = batch

    cdef int64_t computed_multi_token(self, int32_t slot) noexcept nogil:
        cdef Turn turn = self.multi_token.before(slot, self.iteration)
        return turn.computed + self.lead * self.turn_tokens + (
            self.turn_tokens if self.num_in_flight > self.lead else turn.tokens)

    cdef void count_multi_token(self, int32_t slot) noexcept nogil:
        self.multi_token.count_member(slot, self.iteration, self.num_in_flight <= self.lead)

    cdef int repeat_multi_token(self, int32_t count) except -1 nogil:
        cdef int32_t _
        self.kv.step_run(self.phase, count)
        for _ in range(count):
            self.begin_multi_token()
        self.num_in_flight -= count
        if self.tally is not None:
            self.tally.repeat(self.group)
        return 0

    cdef int dissolve(self) except -1 nogil:
        cdef int32_t slot = self._running.head
        self._num_prefilling = 0
        while slot >= 0:
            if self._sequences[slot].is_member:
                self.leave(slot)
                add_row(&self.dissolved, self._sequences[slot].row)
            self._prefilling[self._num_prefilling] = slot
            self._num_prefilling += 1
            slot = self._links.next(slot)
        return 0
