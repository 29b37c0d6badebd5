"""Continuous batching with a waiting queue and victims by the keys of a policy.

As in vLLM V1 (see vllm.pyx), each iteration brings the computed tokens of requests up to their texts within a token
budget: first of running requests, in order of admission, then of waiting ones, which are admitted if their whole text
has room. A policy adds a `Ranking` of waiting requests, smallest key first, and the choice of the victim where blocks
run out: the last admitted, or the one with the largest key. A policy that defines the standing of each request may also
let running ones give way: a waiting request without a place or blocks takes those of running requests with a later
standing, the last first. Only requests that have sampled a token since admission give way, so that each admission
yields a token, and none gives way in vain: if all together free too little, none does. Requests that give way are
recomputed, like all that are preempted.
"""
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport free

from simulator.core.memory cimport resize
from simulator.core.row_list cimport add_row
from simulator.domain.batch cimport clear_shape
from simulator.kv.base cimport blocks_for
from simulator.scheduling.base cimport LOADED
from simulator.scheduling.waiting_queue cimport BY_RANKING, WaitingQueue

from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from simulator.scheduling.base import SchedulerFacts

Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class RankedParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a batch, under vLLM's names."""

    max_num_seqs: Annotated[int, Meta(ge=1, le=2**20, description="running requests")] = 256
    max_num_batched_tokens: Annotated[Tokens, Meta(description="tokens in a batch")] = 2048
    long_prefill_token_threshold: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "longest prompt chunk; 0: no limit"))] = 0


cdef class RequestRanking(Ranking):
    """A ranking that reads requests and the demands of their clients.

    context : ReplicaContext.
    """

    def __cinit__(self, context, *_, **__):
        cdef const Request[::1] requests = context.requests
        cdef const Demand[::1] demands = context.demands
        self._owners = (context.requests, context.demands)
        self.requests = &requests[0] if len(requests) else NULL
        self.demands = &demands[0] if len(demands) else NULL

    def __init__(self, context):
        pass


cdef class Ranked(InOrder):
    """Base of policies that rank waiting requests; see ranked.pxd."""

    def __init__(self, parameters, context):
        self.max_running = parameters.max_num_seqs
        self.longest_prompt = context.max_model_len - 1
        self._max_model_len = context.max_model_len
        self._token_budget = parameters.max_num_batched_tokens
        self._threshold = parameters.long_prefill_token_threshold or INT64_MAX
        self._outputs_are_prompts = context.prompts_use_outputs
        self._may_give_way = INT64_MAX
        self._now_ns = self._forgotten_ns = -1

    def __dealloc__(self):
        free(self._placed.rows)
        free(self._displaced.rows)
        free(self._line)
        free(self._stands)

    cdef int _rank_by(self, object context, Ranking ranking) except -1:
        self._ranking, self._frontier = ranking, IndexHeap()
        self.waiting = WaitingQueue(context.requests, context.demands, BY_RANKING, self._gives_way)
        self.waiting.rank_by(ranking)
        return 0

    @staticmethod
    def facts(parameters):
        """See Scheduler."""
        return SchedulerFacts(parameters.max_num_seqs, parameters.max_num_batched_tokens, takes_threads=True,
                              blocks_held_back=1, why_no_tier="")           # num_gpu_blocks counts one more, as in vllm

    @staticmethod
    def kv_cache(parameters, plan):
        """See Scheduler."""
        # a request may lose a block in the iteration in which it got it, when the block may have been named to the tier
        return InOrder.kv_cache(parameters, replace(plan, with_tables=plan.with_tables or plan.tier is not None))

    cdef int64_t longest_surely_taken(self) noexcept nogil:
        if self.tier is not None:
            return -1
        return min(self.longest_prompt, <int64_t>self.kv.num_blocks * self.kv.block_size)

    cdef bint repeats(self) noexcept nogil:
        # Members alone cannot make room for the head of the queue, unless their outputs are part of its prompt.
        if self.tier is not None or (self._gives_way and (
                self._may_give_way > 0 or self._running.size < self.max_running)):
            return self.num_waiting() == 0
        return self.waiting.size == 0 or self._running.size >= self.max_running or not self._outputs_are_prompts

    cdef bint keeps_turns(self) noexcept nogil:
        return not self._gives_way and InOrder.keeps_turns(self)

    cdef int _begin_batch(self, int64_t now_ns) except -1 nogil:
        return 0

    cdef void _learn(self, const Batch* batch) noexcept nogil:
        pass

    cdef void forget(self) noexcept nogil:
        self._forgotten_ns = self._now_ns
        InOrder.forget(self)

    cdef int32_t _next_row(self) noexcept nogil:
        return self.waiting.top()

    cdef int _take(self, int32_t row) except -1 nogil:
        self.waiting.pop()
        return 0

    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        if (self._learns and batch.shape.prefill_tokens > 0 and batch.duration_ns > 0
                and batch.start_ns > self._forgotten_ns):
            self._learn(batch)
        batch.start_ns = self._now_ns = now_ns
        batch.num_entries = batch.num_preempted = batch.num_members = batch.num_starved = 0
        clear_shape(&batch.shape)
        self._budget = self._token_budget
        self._begin_batch(now_ns)
        if self._gives_way and self.waiting.size > 0 and self._give_way(batch) > 0:
            self.close(batch, -1)       # only preemptions: the next batch is formed at once
            return 0
        if not (self.grouping and self._continue_at_once(batch, self._threshold)):
            self._continue_one_by_one(batch)
        if batch.num_preempted == 0:
            self._admit_waiting(batch)
        self.close(batch, -1)
        return 0

    cdef int32_t _generated(self, int32_t slot) noexcept nogil:
        cdef const Sequence* sequence = &self._sequences[slot]
        return self.outputs(slot) if sequence.is_member else sequence.num_tokens - sequence.prompt_tokens

    # ---- places

    def counts(self):
        """See Scheduler."""
        found = InOrder.counts(self)
        if self._gives_way:
            found["given_way"] = self._given_way
            found["kv_allocation_failures"] -= self._given_way
        return found

    cdef double _standing(self, int32_t row, int32_t slot) noexcept nogil:
        return 0.0

    cdef void _stand(self) noexcept nogil:
        cdef int32_t i
        for i in range(self._in_line):
            self._line[i].standing = self._standing(self._sequences[self._line[i].slot].row, self._line[i].slot)

    cdef int _give_way(self, Batch* batch) except -1 nogil:
        """Let running requests give way to waiting ones that rank before them; return how many did."""
        cdef int64_t blocks = self.kv.free_blocks, places = self.max_running - self._running.size
        cdef int64_t budget = self._token_budget - self._spoken_for(&blocks), given_way = self._given_way
        cdef int32_t row, i
        self._in_line = -1
        if places <= 0 and self._may_give_way <= 0:
            return 0
        while budget > 0 and self._placed.size < self.waiting.size:
            row = self._next_row()
            if self.stale_tokens(row) > 0 or not self._make_place(batch, row, &places, &blocks):
                break
            if batch.num_preempted == 0:        # there is room without preemption
                break
            self._set_aside(row)
            add_row(&self._placed, row)
            budget -= min(<int64_t>self._requests[row].prompt_tokens + self._requests[row].output_tokens,
                          self._threshold)
        if batch.num_preempted == 0:
            return 0
        self._end_looking()
        for i in range(self._displaced.size):
            self.waiting.push(self._displaced.rows[i])
        self._placed.size = self._displaced.size = 0
        return <int>(self._given_way - given_way)

    cdef int _set_aside(self, int32_t row) except -1 nogil:
        cdef int32_t place = self._frontier.pop() if self._placed.size > 0 else 0, child, other
        for child in range(2 * place + 1, min(2 * place + 3, self.waiting.size)):
            other = self.waiting.at(child)
            self._frontier.push(child, self._ranking.key(other), self._requests[other].arrival_ns,
                                self._demands[other].tie_rank)
        return 0

    cdef int _end_looking(self) except -1 nogil:
        self._frontier.clear()
        return 0

    cdef int32_t _next_beside(self) noexcept nogil:
        return self.waiting.at(self._frontier.top() if self._placed.size > 0 else 0)

    cdef bint _make_place(self, Batch* batch, int32_t row, int64_t* places, int64_t* blocks) except -1 nogil:
        """Find a place and blocks for a waiting request, preempting those ranked behind it; return whether it
        succeeded."""
        cdef int64_t text = <int64_t>self._requests[row].prompt_tokens + self._requests[row].output_tokens
        cdef int64_t needed = self.kv.needed(self.top_slot(), self.kv.lookup(row, <int32_t>text), text)
        cdef double before = 0.0
        cdef int32_t slot
        if places[0] <= 0 or needed > blocks[0]:
            before = self._standing(row, -1)
            self._line_up()
            if self._yielding(before) < 0 or (
                    needed > blocks[0] and needed > blocks[0] + self._blocks_behind(before)):
                return False
        while places[0] <= 0 or needed > blocks[0]:
            slot = self._yielding(before)
            if slot < 0:                        # the blocks of the preempted requests are shared
                return False
            if not self._is_heap:
                self._order_line()
            self._in_line -= 1
            sink(self._line, self._in_line, 0, self._line[self._in_line])
            blocks[0] -= self.kv.free_blocks
            add_row(&self._displaced, self._sequences[slot].row)
            self.preempt(slot, batch)
            batch.preempted[batch.num_preempted - 1].gave_way = True
            self._given_way += 1
            self._may_give_way -= 1
            places[0] += 1
            blocks[0] += self.kv.free_blocks
            needed = self.kv.needed(self.top_slot(), self.kv.lookup(row, <int32_t>text), text)
        places[0] -= 1
        blocks[0] -= needed
        return True

    cdef int _line_up(self) except -1 nogil:
        """List the sequences that may give way, with their standings: once per batch, since searching changes none."""
        cdef int32_t i
        if self._in_line >= 0:
            return 0
        self._make_room_for_line()
        self._in_line, self._is_heap, self._last = 0, False, 0
        if self._may_give_way > 0:
            self._list_running()
            self._stand()
        for i in range(1, self._in_line):
            if self._line[i].standing >= self._line[self._last].standing:       # and it was admitted later
                self._last = i
        return 0

    cdef int _make_room_for_line(self) except -1 nogil:
        if self._line == NULL:
            resize(&self._line, self.max_running * sizeof(Yielding))
        if self._num_stands < self.num_slots:
            resize(&self._stands, self.num_slots * sizeof(Stand))
        while self._num_stands < self.num_slots:
            self._stands[self._num_stands].order = -1
            self._num_stands += 1
        return 0

    cdef void _list_running(self) noexcept nogil:
        """List the sequences that have sampled since they were admitted, in order of admission."""
        cdef const Sequence* sequence
        cdef int32_t slot = self._running.head
        while slot >= 0:
            sequence = &self._sequences[slot]
            if sequence.is_member or (sequence.is_decoding and sequence.in_flight == 0):
                self._line[self._in_line].slot, self._line[self._in_line].order = slot, sequence.order
                self._in_line += 1
            slot = self._links.next(slot)

    cdef void _order_line(self) noexcept nogil:
        cdef int32_t i
        for i in range((self._in_line - 2) >> 1, -1, -1):
            sink(self._line, self._in_line, i, self._line[i])
        self._is_heap, self._last = True, 0

    cdef int32_t _yielding(self, double before) noexcept nogil:
        """Return the lowest-ranked slot in line if a waiting request of standing `before` outranks it, else -1."""
        if self._in_line > 0 and self._may_give_way > 0 and self._line[self._last].standing > before:
            return self._line[self._last].slot
        return -1

    cdef int64_t _blocks_behind(self, double before) noexcept nogil:
        """Return the blocks of all listed sequences that a waiting request of standing `before` outranks."""
        cdef int64_t blocks = 0
        cdef int32_t i
        for i in range(self._in_line):
            if self._line[i].standing > before:
                blocks += blocks_for(self.computed(self._line[i].slot), self.kv.block_size)
        return blocks

    cdef int64_t _spoken_for(self, int64_t* blocks) noexcept nogil:
        """Return the tokens that running requests want; subtract the blocks that they lack from `blocks`."""
        cdef int64_t tokens = self.num_members, needed
        cdef int32_t slot = self._running.head, i
        if self.grouping:
            blocks[0] -= self.kv.due_at_most(self.phase)
        for i in range(self._num_prefilling if self.grouping else self._running.size):
            slot = self._prefilling[i] if self.grouping else slot
            needed = self._needed_tokens(&self._sequences[slot], self._threshold)
            tokens += needed
            blocks[0] -= self.kv.lacking(slot, self.computed(slot) + needed)
            slot = self._links.next(slot)
        return tokens

    # ---- running requests

    cdef int64_t _needed_tokens(self, const Sequence* sequence, int64_t threshold) noexcept nogil:
        if sequence.is_member:
            return 1
        return min(min(<int64_t>sequence.num_tokens - sequence.num_computed, threshold),
                   self._max_model_len - sequence.num_computed - 1)

    cdef int _continue_one_by_one(self, Batch* batch) except -1 nogil:
        """Visit the running list in order, preempting where blocks run out."""
        cdef int32_t slot = self._running.head
        cdef int64_t tokens
        while slot >= 0:
            self._sequences[slot].scheduled = 0
            slot = self._links.next(slot)
        slot = self._running.head
        while slot >= 0 and self._budget > 0:
            tokens = min(self._needed_tokens(&self._sequences[slot], self._threshold), self._budget)
            if tokens > 0:
                if self._sequences[slot].is_member:
                    self.kv.settle(slot, self.computed(slot))
                if not self._make_room(batch, slot, tokens):
                    break
                self._sequences[slot].scheduled = <int32_t>tokens
                self._budget -= tokens
            slot = self._links.next(slot)
        return self._gather(batch)

    cdef int _make_room(self, Batch* batch, int32_t slot, int64_t tokens) except -1 nogil:
        """Allocate for a running sequence, preempting others; return 0 if it is preempted itself."""
        cdef int64_t computed = self.computed(slot) + tokens
        cdef int32_t victim, row
        while not self.kv.allocate(slot, self._sequences[slot].row, 0, computed, 0, 0, computed):
            victim = self._victim()
            row = self._sequences[victim].row
            self._budget += self._sequences[victim].scheduled
            self.preempt(victim, batch)
            self.waiting.push_front(row)
            if victim == slot:
                return 0
        return 1

    cdef int32_t _victim(self) noexcept nogil:
        cdef int32_t worst = self._running.tail, slot
        if self._gives_way:
            return self._least_ranked()
        if not self._evicts_last_ranked:
            return worst
        slot = self._links.prev(worst)
        while slot >= 0:
            if self.waiting.precedes(self._sequences[worst].row, self._sequences[slot].row):
                worst = slot
            slot = self._links.prev(slot)
        return worst

    cdef int32_t _least_ranked(self) noexcept nogil:
        cdef int32_t worst = self._running.tail, slot = self._links.prev(self._running.tail)
        cdef double last_standing = self._standing(self._sequences[worst].row, worst), standing
        while slot >= 0:
            standing = self._standing(self._sequences[slot].row, slot)
            if standing > last_standing:
                worst, last_standing = slot, standing
            slot = self._links.prev(slot)
        return worst

    # ---- waiting requests

    cdef int _admit_waiting(self, Batch* batch) except -1 nogil:
        cdef int32_t row
        if self._held.size > 0 and not self._admit_held(batch):
            return 0
        while self._budget > 0 and self.waiting.size > 0 and self._running.size < self.max_running:
            row = self._next_row()
            if self.stale_tokens(row) > 0 or not self._admit_next(batch, row):      # no request overtakes it
                break
        return 0

    cdef bint _admit_next(self, Batch* batch, int32_t row) except -1 nogil:
        """Admit a request, or let it wait for KV from the tier; return False if there is no room."""
        cdef int64_t text = <int64_t>self._requests[row].prompt_tokens + self._requests[row].output_tokens
        cdef int32_t hits = self.kv.lookup(row, <int32_t>text), slot = self.top_slot()
        cdef int64_t computed = <int64_t>hits * self.kv.block_size, tokens
        cdef External external
        external.tokens, external.comes_later, external.has_first_token = 0, False, False
        if self.tier is not None:
            self.tier.match(row, computed, &external)
        if external.tokens > 0 and external.comes_later:
            return self._hold_next(batch, row, hits, external)
        computed += external.tokens
        tokens = min(min(text - computed, self._threshold), self._budget)
        if not self.kv.allocate(slot, row, hits, computed + tokens, text, 0, computed + tokens):
            return False
        self._take(row)
        self.admit(row, hits, batch)
        if external.tokens > 0:
            self.load_now(slot, external, batch.start_ns)
        self._begin(batch, slot, tokens)
        return True

    cdef bint _hold_next(self, Batch* batch, int32_t row, int32_t hits, External found) except -1 nogil:
        cdef int64_t text = <int64_t>self._requests[row].prompt_tokens + self._requests[row].output_tokens
        cdef int64_t tokens = min(<int64_t>hits * self.kv.block_size + found.tokens + found.has_first_token,
                                  self._max_model_len)
        cdef int32_t slot = self.top_slot()
        if not self._has_room(row, slot, hits, tokens, 0) or not self.kv.allocate(slot, row, hits, tokens, text, 0, 0):
            return False
        self._take(row)
        self.hold(row, hits, found, batch.start_ns)
        return True

    cdef bint _admit_held(self, Batch* batch) except -1 nogil:
        """Admit requests after their KV has arrived from the tier, in order; return False if one lacks blocks."""
        cdef int32_t slot = self._held.head, following
        cdef const Sequence* sequence
        cdef int64_t tokens, computed
        while slot >= 0 and self._budget > 0 and self._running.size < self.max_running:
            following, sequence = self._links.next(slot), &self._sequences[slot]
            if sequence.hold == LOADED:
                self.settle_held(slot)
                tokens = min(min(<int64_t>sequence.num_tokens - sequence.num_computed, self._threshold), self._budget)
                computed = sequence.num_computed + tokens
                if not self.kv.allocate(slot, sequence.row, 0, computed, sequence.num_tokens, 0, computed):
                    return False
                self.run_held(slot, batch)
                self._begin(batch, slot, tokens)
            slot = following
        return True

    cdef void _begin(self, Batch* batch, int32_t slot, int64_t tokens) noexcept nogil:
        self._sequences[slot].scheduled = <int32_t>tokens
        self.add_entry(batch, slot)
        self._budget -= tokens


cdef inline bint yields_before(const Yielding* one, const Yielding* other) noexcept nogil:
    if one.standing != other.standing:
        return one.standing > other.standing
    return one.order > other.order


cdef void sink(Yielding* line, int32_t size, int32_t hole, Yielding entry) noexcept nogil:
    """Insert an entry into a binary heap, from the hole downwards."""
    cdef int32_t child = 2 * hole + 1
    while child < size:
        if child + 1 < size and yields_before(&line[child + 1], &line[child]):
            child += 1
        if not yields_before(&line[child], &entry):
            break
        line[hole] = line[child]
        hole = child
        child = 2 * hole + 1
    line[hole] = entry
