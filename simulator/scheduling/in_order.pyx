"""Base of policies that serve the running list in order of admission, within a budget of tokens."""
from simulator.kv.hybrid.tables cimport GroupTables


cdef enum:
    MOST_RESERVED = 4096        # most tokens of an answer that SGLang reserves (CLIP_MAX_NEW_TOKEN)


cdef inline bint _will_compute_text(const Sequence* sequence) noexcept nogil:
    # A sequence computes its text, or waits for KV of it; not if the batch being formed computes all of it.
    return not sequence.is_decoding and (not sequence.is_new or sequence.is_partial
                                         or sequence.num_computed + sequence.scheduled < sequence.num_tokens)


cdef class InOrder(Scheduler):
    """Base of policies that serve the running list in order; see in_order.pxd."""

    cdef bint keeps_turns(self) noexcept nogil:
        # The running list is served in order: later requests take nothing from members, but unfinished prompts before
        # them may.
        return self.num_members + self._num_prefilling <= self._token_budget and (
            self._num_prefilling == 0 or self._sequences[self._prefilling[0]].order > self._last_member_order)

    cdef int64_t _needed_tokens(self, const Sequence* sequence, int64_t threshold) noexcept nogil:
        return 0

    cdef int64_t _cut(self, int32_t slot, int64_t tokens) noexcept nogil:
        return tokens

    cdef void _note_turn(self, Sequence* sequence) noexcept nogil:
        pass

    cdef int _continue_at_once(self, Batch* batch, int64_t threshold) except -1 nogil:
        cdef int64_t budget = self._budget - <int64_t>self.num_members * self.turn_tokens, needed, tokens
        cdef int64_t need = self.kv.due_at_most(self.phase)
        cdef int32_t i, slot
        cdef Sequence* sequence
        if budget < 0:
            return 0
        for i in range(self._num_prefilling):
            slot = self._prefilling[i]
            sequence = &self._sequences[slot]
            needed = self._needed_tokens(sequence, threshold)
            tokens = min(needed, budget)
            if tokens < needed and self.num_members > 0 and sequence.order < self._last_member_order:
                return 0
            if self.kv.chunk_alignment > 0 and tokens > 0:
                tokens = self._cut(slot, tokens)
            sequence.scheduled = <int32_t>tokens
            budget -= tokens
            if tokens > 0:
                need += self.kv.lacking(slot, self._slots(sequence.num_computed + tokens))
        if need > self.kv.free_blocks:
            return 0
        self.kv.step_begin(self.phase)
        for i in range(self._num_prefilling):
            slot = self._prefilling[i]
            sequence = &self._sequences[slot]
            if sequence.scheduled > 0:
                self.kv.step_before(sequence.order)
                tokens = sequence.num_computed + sequence.scheduled
                if self.kv.is_hybrid:
                    self.kv.slide(slot, self.settled(slot))
                self.kv.allocate(slot, sequence.row, 0, self._slots(tokens), 0, 0,
                                 min(tokens, <int64_t>sequence.num_tokens - self.kv.hashes_ahead))
                if self._notes_turns:
                    self._note_turn(sequence)
                self.add_entry(batch, slot)
        self.kv.step_before(self._next_order)
        batch.num_members, batch.shape.context_tokens = self.num_members, self.member_tokens
        self._budget = budget
        return 1

    cdef int _gather(self, Batch* batch) except -1 nogil:
        cdef int32_t slot = self._running.head
        cdef bint anything = self._puts_off_frees and batch.num_preempted == 0      # others may be admitted
        cdef Sequence* sequence
        while slot >= 0 and not anything:
            anything = self._sequences[slot].scheduled > 0
            slot = self._links.next(slot)
        slot = self._running.head if anything else -1       # an empty batch is no iteration, so no member misses a turn
        while slot >= 0:
            sequence = &self._sequences[slot]
            if not sequence.is_member:
                if sequence.scheduled > 0:
                    self.add_entry(batch, slot)
            elif sequence.group != self.group:
                pass                                    # its token is in flight
            elif sequence.scheduled > 0:
                batch.num_members += 1
                batch.shape.context_tokens += self.iteration + sequence.offset + 1
                sequence.scheduled = 0
                sequence.is_starved = False
                if self.copies:
                    self.kv.announce_turn(slot, self.iteration + sequence.offset)
            else:
                batch.num_starved += 1
                sequence.is_starved = True
                self.starve(slot)
            slot = self._links.next(slot)
        return 0

    # ---- room for KV from elsewhere

    cdef bint _has_room(self, int32_t row, int32_t slot, int32_t hits, int64_t tokens,
                        int32_t watermark) noexcept nogil:
        if self.tier.reserved_tokens >= 0:
            return self._leaves_reserve(row, hits)
        return (self.kv.needed(slot, hits, tokens) + watermark + self._draft_blocks
                <= self.kv.free_blocks - self._unfinished_blocks())

    cdef bint _leaves_reserve(self, int32_t row, int32_t hits) noexcept nogil:
        """Return whether a request may have blocks before its prompt is computed elsewhere, by SGLang's rule.

        With its blocks taken, `reserved_tokens` must remain free for each sequence that runs or waits for KV, and each
        one alone must be able to run to its end if all running ones are preempted. Source: SGLang,
        disaggregation/decode.py, DecodePreallocQueue.
        """
        cdef int64_t reserved = self.tier.reserved_tokens, prompt = self._requests[row].prompt_tokens
        cdef int64_t found = <int64_t>hits * self.kv.block_size, fetched, retractable = self._retractable(), least
        cdef int64_t largest = 0
        cdef int32_t slot = self._running.head, active = self._running.size + self._held.size
        while slot >= 0 and retractable < self._max_model_len + MOST_RESERVED:      # else no text is longer
            largest = max(largest, self._longest(self._sequences[slot].row))
            slot = self._links.next(slot)
        fetched = prompt - found
        least = max(fetched + reserved, self._longest(row) - found - retractable)
        return least <= (<int64_t>(self.kv.free_blocks - self.kv.free_hits()) * self.kv.block_size
                         - max(reserved * active, largest - retractable))

    cdef int64_t _retractable(self) noexcept nogil:
        """Return the tokens in KV of all running sequences, plus one for each."""
        cdef int64_t tokens = self.member_tokens if self.grouping else 0
        cdef int32_t slot = -1 if self.grouping else self._running.head, i
        for i in range(self._num_prefilling if self.grouping else 0):
            tokens += self.computed(self._prefilling[i]) + 1
        while slot >= 0:
            tokens += self.computed(slot) + 1
            slot = self._links.next(slot)
        return tokens

    cdef int64_t _longest(self, int32_t row) noexcept nogil:
        return <int64_t>self._requests[row].prompt_tokens + min(<int64_t>self._demands[row].max_tokens, MOST_RESERVED)

    cdef int64_t _unfinished_blocks(self) noexcept nogil:
        """Return the blocks that texts being computed or loaded still need."""
        cdef int64_t promised = 0
        cdef int32_t slot = self._held.head, i
        while slot >= 0:
            promised += self._missing_blocks(slot)
            slot = self._links.next(slot)
        if self.grouping:                               # members decode
            for i in range(self._num_prefilling):
                if _will_compute_text(&self._sequences[self._prefilling[i]]):
                    promised += self._missing_blocks(self._prefilling[i])
            return promised
        slot = self._running.head
        while slot >= 0:
            if _will_compute_text(&self._sequences[slot]):
                promised += self._missing_blocks(slot)
            slot = self._links.next(slot)
        return promised

    cdef int64_t _missing_blocks(self, int32_t slot) noexcept nogil:
        cdef int64_t text = min(<int64_t>self._sequences[slot].num_tokens, self._max_model_len)
        if self.kv.is_hybrid:
            return (<GroupTables>self.kv).lacking_whole(slot, text, self._draft_slots)
        return self.kv.lacking(slot, text + self._draft_slots)
