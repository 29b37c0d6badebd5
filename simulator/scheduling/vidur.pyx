"""Base of Vidur's replica schedulers; see vidur.pxd.

Source: microsoft/vidur at 7d47513, vidur/scheduler/replica_scheduler/base_replica_scheduler.py and its subclasses. Two
cases that end a run of Vidur do not end one here: a text that fits only if nothing else runs ignores the watermark
then, and a batch that restarted all its requests is formed again at once.
"""
from libc.stdlib cimport calloc, free

from simulator.core.memory cimport resize
from simulator.domain.batch cimport clear_shape
from simulator.domain.iteration cimport Entry
from simulator.scheduling.waiting_queue cimport FIRST_COME, WaitingQueue

from typing import Annotated

import msgspec
from msgspec import Meta


# Why some schedulers of Vidur cannot continue requests after other replicas have computed their prompts.
ALONE = "its batches are of prompts alone or of decodes alone, and it has no rule for requests that arrive with KV"


class VidurParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Common keys of Vidur's replica schedulers, under Vidur's names."""

    batch_size_cap: Annotated[int, Meta(ge=1, le=2**20, extra={"unit": "requests"}, description=(
        "running requests; a batch has at most this by the number of pipeline stages, rounded down, at least 1"))] = 128


class WatermarkParameters(VidurParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of schedulers that admit a request with blocks for its prompt."""

    watermark_blocks_fraction: Annotated[float, Meta(ge=0, lt=1, description=(
        "share of the KV blocks that stays free at admission while anything runs"))] = 0.01


cdef class VidurScheduler(InOrder):
    """Base of Vidur's replica schedulers; see vidur.pxd."""

    def __dealloc__(self):
        free(self._at_hand)
        free(self._stamps)
        free(self._returned)

    cdef int share(self, int64_t batch_size_cap, double watermark_fraction, int32_t spare, object context) except -1:
        self.max_running = <int32_t>batch_size_cap
        self.longest_prompt = context.max_model_len - 1
        self._max_model_len = context.max_model_len
        self._micro_batch = max(self.max_running // <int32_t>context.num_stages, 1)
        self._watermark = <int32_t>(watermark_fraction * self.kv.num_blocks)
        self._spare = self.kv.slack = spare     # as long as it stays free, members run ahead
        self._outputs_are_prompts = context.prompts_use_outputs
        self.waiting = WaitingQueue(context.requests, context.demands, FIRST_COME)
        if context.num_stages > 1:
            self._returned = <int64_t*>calloc(len(context.requests) + 1, sizeof(int64_t))
            if self._returned == NULL:
                raise MemoryError()
        return 0

    cdef int64_t longest_surely_taken(self) noexcept nogil:
        return min(self.longest_prompt, <int64_t>self.kv.num_blocks * self.kv.block_size)

    cdef bint repeats(self) noexcept nogil:
        # Members alone make no room for the head of the queue, unless their outputs are part of its prompt.
        return self.waiting.size == 0 or self._running.size >= self.max_running or not self._outputs_are_prompts

    cdef int update(self, const Entry* entry, int32_t sampled, int32_t rejected, bint goes_on) except -1 nogil:
        if self._returned != NULL:
            self._stamp += 1
            self._returned[entry.row] = self._stamp
        return InOrder.update(self, entry, sampled, rejected, goes_on)

    cdef void begin_batch(self, Batch* batch, int64_t now_ns) noexcept nogil:
        batch.start_ns = now_ns
        batch.num_entries = batch.num_preempted = batch.num_members = batch.num_starved = 0
        clear_shape(&batch.shape)
        self._size = 0

    cdef int gather_at_hand(self) except -1 nogil:
        cdef int32_t slot = self._running.head, i
        cdef int64_t stamp
        if self._room < self.num_slots:
            resize(&self._at_hand, self.num_slots * sizeof(int32_t))
            resize(&self._stamps, self.num_slots * sizeof(int64_t))
            self._room = self.num_slots
        self._count = 0
        while slot >= 0:
            if self._sequences[slot].in_flight == 0:
                stamp, i = self._stamp_of(&self._sequences[slot]), self._count
                while i > 0 and self._stamps[i - 1] > stamp:
                    self._at_hand[i], self._stamps[i] = self._at_hand[i - 1], self._stamps[i - 1]
                    i -= 1
                self._at_hand[i], self._stamps[i] = slot, stamp
                self._count += 1
            self._sequences[slot].scheduled = 0
            slot = self._links.next(slot)
        return 0

    cdef inline int64_t _stamp_of(self, const Sequence* sequence) noexcept nogil:
        """Return the sort key of a sequence at hand: one without a turn in the last batch has kept its place."""
        if self._returned != NULL:
            return self._returned[sequence.row]
        return sequence.is_decoding or sequence.scheduled > 0

    cdef void sort_by_arrival(self) noexcept nogil:
        cdef int32_t i, j, slot
        cdef int64_t arrival_ns
        for i in range(1, self._count):
            slot, j = self._at_hand[i], i
            arrival_ns = self._requests[self._sequences[slot].row].arrival_ns
            while j > 0 and self._requests[self._sequences[self._at_hand[j - 1]].row].arrival_ns > arrival_ns:
                self._at_hand[j] = self._at_hand[j - 1]
                j -= 1
            self._at_hand[j] = slot

    cdef bint continue_at(self, Batch* batch, int32_t i, int64_t tokens, int64_t slots) except -1 nogil:
        cdef int32_t slot = self._at_hand[i], victim
        cdef Sequence* sequence = &self._sequences[slot]
        cdef int64_t computed = self.computed(slot)
        if sequence.is_member:
            self.kv.settle(slot, computed)
        while self.kv.free_blocks < self._spare or not self.kv.allocate(
                slot, sequence.row, 0, slots, 0, 0, computed + tokens):
            self._count = max(self._count - 1, i)
            victim = self._at_hand[self._count]
            self.restart(batch, victim)
            if victim == slot:
                return False
        sequence.scheduled = <int32_t>tokens
        self._size += 1
        return True

    cdef bint decode_all(self, Batch* batch) except -1 nogil:
        if not self.grouping or self.num_members == 0 or self.kv.free_blocks < self.kv.due(self.phase) + self._spare:
            return False
        self.kv.step_begin(self.phase)
        self.kv.step_before(self._next_order)
        batch.num_members = self.num_members
        batch.shape.context_tokens = self.member_tokens
        self._size += self.num_members
        return True

    cdef int _find_head(self, External* found) except -1 nogil:
        """Return the cached blocks of the head of the queue; `found`: the KV behind them that arrived with it."""
        cdef int32_t row = self.waiting.top()
        cdef int32_t hits = self.kv.lookup(row, <int32_t>self.head_text())
        found.tokens, found.comes_later, found.has_first_token = 0, False, False
        if self.tier is not None:
            self.tier.match(row, <int64_t>hits * self.kv.block_size, found)
        return hits

    cdef int64_t head_tokens(self) except -1 nogil:
        cdef External found
        cdef int32_t hits = self._find_head(&found)
        return self.head_text() - <int64_t>hits * self.kv.block_size - found.tokens

    cdef bint admit_head(self, Batch* batch, int64_t most, int64_t slots) except -1 nogil:
        cdef int32_t row = self.waiting.top(), hits, slot = self.top_slot()
        cdef int64_t computed, tokens
        cdef External found
        hits = self._find_head(&found)
        computed = <int64_t>hits * self.kv.block_size + found.tokens
        tokens = min(self.head_text() - computed, most)
        if not self.kv.allocate(slot, row, hits, slots, 0, self._watermark if self._running.size > 0 else 0,
                                computed + tokens):
            return False
        self.waiting.pop()
        self.admit(row, hits, batch)
        if found.tokens > 0:
            self.load_now(slot, found, batch.start_ns)
        self._sequences[slot].scheduled = <int32_t>tokens
        self._size += 1
        return True

    cdef int fill(self, Batch* batch) except -1 nogil:
        cdef int32_t i, slot
        if self._returned == NULL:
            return self._gather(batch)
        for i in range(self._count):
            slot = self._at_hand[i]
            if slot >= 0 and self._sequences[slot].scheduled > 0:
                self.add_entry(batch, slot)
        slot = self._running.head
        while slot >= 0:
            if self._sequences[slot].is_new:
                self.add_entry(batch, slot)
            slot = self._links.next(slot)
        return 0

    cdef int restart(self, Batch* batch, int32_t slot) except -1 nogil:
        cdef int32_t row = self._sequences[slot].row
        self.preempt(slot, batch)
        return self.waiting.push_front(row)
