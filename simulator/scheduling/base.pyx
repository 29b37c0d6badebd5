"""Base of all schedulers: slots, running list, group of decoding sequences."""
from libc.stdlib cimport calloc, free

from simulator.core.given_back cimport give_back
from simulator.core.index_list cimport new_list
from simulator.core.memory cimport resize, resize_lines
from simulator.core.row_list cimport add_row
from simulator.domain.batch cimport BatchShape, Chunk
from simulator.domain.request cimport COMPLETED, DROPPED, PENDING, REJECTED, WAITING
from simulator.domain.iteration cimport NO_TOKEN, Preempted, insert_entry
from simulator.kv.tier cimport LOAD_CAME, LOAD_FATAL, LOAD_LOST, LoadEnd

from simulator.domain.server_defaults.said import usual
from simulator.kv.counting import CountingKV
from simulator.kv.paged import PagedKV
from simulator.kv.sparse import SparseKV
from simulator.scheduling.contract import MemoryNeeds, SchedulerFacts


cdef inline void count_chunk(BatchShape* shape, const Chunk* chunk) noexcept nogil:
    shape.num_chunks += 1
    shape.prefill_tokens += chunk.tokens
    shape.prefill_context_tokens += chunk.context_tokens
    shape.prefill_token_pairs += chunk.tokens * (2 * <int64_t>chunk.context_tokens + chunk.tokens + 1)


cdef enum:
    FIRST_SLOTS = 16            # doubled up to max_running: most replicas run few sequences

ADVICE = {
    "livelock": "give more blocks, or let fewer requests run at once",
    "too large": "give more blocks",
    "passed over": "the scheduler admits no request while nothing else happens",
    "left alone": "the scheduler gives them no tokens while nothing else happens",
}


cdef class Scheduler:
    """Base of all schedulers; see base.pxd for the contract.

    A scheduler is built as `Policy(parameters, context)`, with its own frozen `Parameters` and a `ReplicaContext`. Its
    `__init__` sets `waiting`, `max_running` and `longest_prompt`.
    """

    def __cinit__(self, parameters, context, *_, **__):
        cdef Request[::1] requests = context.requests
        cdef const Demand[::1] demands = context.demands
        self._owners = (context.requests, context.demands)
        self._requests = &requests[0] if len(requests) else NULL
        self._demands = &demands[0] if len(demands) else NULL
        self.kv = context.kv
        self.grouping = context.fast_forward
        self.num_groups = self.turn_tokens = 1
        self.opens_ns = NEVER_NS
        self._counts_queries = context.enable_prefix_caching
        self._links = IndexLinks()
        self._running = self._parked = self._arrived = self._held = new_list()
        if context.tier is not None:
            self.tier, self.transfers = context.tier, Transfers()
            self.copies = self.tier.copies
        self._asks_who_joins = self.copies or self.kv.is_hybrid
        self.grammar_drafts = context.grammar_drafts
        if context.num_stages > 1:
            self.grouping = False
            self.overlap(0, 1)

    def __dealloc__(self):
        free(self._sequences)
        free(self._free_slots)
        free(self._prefilling)
        free(self._stale)
        free(self._groups)
        free(self._eligible)
        free(self.dissolved.rows)
        free(self._put_off.rows)
        free(self.seeded.rows)
        free(self.failed.rows)

    def forget_rows(self, size_t first, size_t last):
        """Give back the memory of rows first .. last - 1, as of all rows before; their requests have ended."""
        if self._stale != NULL:
            give_back(self._stale, first * sizeof(int32_t), last * sizeof(int32_t))
        if self._eligible != NULL:
            give_back(self._eligible, first * sizeof(int64_t), last * sizeof(int64_t))

    cdef int overlap(self, int32_t lead, int32_t num_groups) except -1:
        if self.grouping:
            self.overlaps = True
            self.lead = self.kv.unknown_tokens = lead
            self.num_groups = num_groups
        if self.grouping and num_groups > 1:
            self.kv.reserve_groups(num_groups)
            self._groups = <Group*>calloc(num_groups, sizeof(Group))
            if self._groups == NULL:
                raise MemoryError()
        if lead > 0 and num_groups > 1:
            self.turn_interval = num_groups
            self._eligible = <int64_t*>calloc(len(self._owners[0]) + 1, sizeof(int64_t))
            if self._eligible == NULL:
                raise MemoryError()
        self._puts_off_frees = self.copies and self.tier.puts_off_frees
        if self._stale == NULL:
            self._stale = <int32_t*>calloc(len(self._owners[0]) + 1, sizeof(int32_t))
            if self._stale == NULL:
                raise MemoryError()
        return 0

    cdef void turn_to(self, int32_t group) noexcept nogil:
        cdef Group* it = &self._groups[self.group]
        if group == self.group:
            return
        it.iteration, it.member_tokens, it.phase = self.iteration, self.member_tokens, self.phase
        it.num_members, it.num_in_flight, it.ended_ns = self.num_members, self.num_in_flight, self.ended_ns
        it.in_flight[0], it.in_flight[1] = self._in_flight[0], self._in_flight[1]
        self.group = group
        it = &self._groups[group]
        self.iteration, self.member_tokens, self.phase = it.iteration, it.member_tokens, it.phase
        self.num_members, self.num_in_flight, self.ended_ns = it.num_members, it.num_in_flight, it.ended_ns
        self._in_flight[0], self._in_flight[1] = it.in_flight[0], it.in_flight[1]
        self.kv.turn_to(group)

    cdef int32_t group_in_turn(self) noexcept nogil:
        cdef int32_t group = 0
        if self.turn_interval > 0:
            return <int32_t>(self.step % self.turn_interval)
        if self.num_in_flight == 0:
            return self.group
        while group == self.group or self._groups[group].num_in_flight > 0:
            group += 1
        return group

    cdef Group group_at(self, int32_t index) noexcept nogil:
        cdef Group group
        if index != self.group:
            return self._groups[index]
        group.iteration, group.member_tokens, group.phase = self.iteration, self.member_tokens, self.phase
        group.num_members, group.num_in_flight, group.ended_ns = self.num_members, self.num_in_flight, self.ended_ns
        group.in_flight[0], group.in_flight[1] = self._in_flight[0], self._in_flight[1]
        return group

    # ---- class-level answers

    @staticmethod
    def facts(parameters) -> SchedulerFacts:
        """Return the facts that follow from the parameters."""
        return SchedulerFacts(getattr(parameters, "max_num_seqs", None),
                              getattr(parameters, "max_num_batched_tokens", 0))

    @classmethod
    def memory(cls, parameters, deployment, max_model_len) -> MemoryNeeds:
        """Return the needs of the memory plan; ValueError: unknown, so the experiment must give num_gpu_blocks."""
        facts = cls.facts(parameters)
        if facts.max_running is None or facts.max_batched_tokens < 1:
            raise ValueError(f"{cls.__name__} does not say how many sequences and tokens a batch has at most; give "
                             "num_gpu_blocks, or override Scheduler.memory")
        return MemoryNeeds(facts.max_batched_tokens, facts.max_running)

    @staticmethod
    def around(parameters, deployment):
        """Return additions of the engine to the time of its batches: functions from LatencyModel to LatencyModel.

        The first wraps the latency model, and each further one wraps the one before; see simulator/latency/overheads.

        deployment : None where the experiment has no [model] or no [hardware].
        """
        return ()

    @staticmethod
    def defaults(engine, machine):
        """Return {key of [engine]: Default} for the keys that an experiment may leave out.

        engine : as in `faults`, with None for these keys. machine : simulator.domain.server_defaults.said.Machine.
        """
        return usual(engine)

    @staticmethod
    def faults(parameters, engine):
        """Return (key, fault) for each key of [engine] that the scheduler refuses to start with.

        engine : `simulator.config.experiment.Engine`, of which `parameters` are the scheduler's own.
        """
        return ()

    @staticmethod
    def item_faults(parameters, items):
        """Return (key of [engine], fault) for conflicts with these Items; None: none."""
        return ()

    @staticmethod
    def label_faults(parameters, labels):
        """Return (key of [engine], fault) for conflicts with the labels of requests, as Workload has them."""
        return ()

    @staticmethod
    def layer_faults(parameters, layers, enable_prefix_caching):
        """Return (key of [engine], fault) for conflicts with these LayerGroups; None: none."""
        return ()

    @staticmethod
    def longest_answers(parameters, pool, prompt_tokens):
        """Return the most output tokens, int64 (n,), that the engine allows for prompts of such lengths.

        Also return whether, bool (n,), the KV pool sets this limit and not max_model_len. None: max_model_len is the
        only limit. -1: the prompt is accepted, but rejected with its first token, which no client sees.

        pool : simulator.engine.plan.Pool, the replicas that it schedules.
        """
        return None

    @staticmethod
    def kv_cache(parameters, plan):
        """Return the KVCache of one replica; plan.layer_groups is set only if the facts have a `grouping`."""
        if not plan.with_identity:
            return CountingKV(plan.num_blocks, plan.block_size)
        if plan.enable_prefix_caching and not plan.with_tables:
            return SparseKV(plan.num_blocks, plan.block_size, plan.content)
        return PagedKV(plan.num_blocks, plan.block_size, plan.content, plan.enable_prefix_caching)

    # ---- the policy; these defaults suit schedulers without async scheduling

    cdef int8_t refusal(self, int32_t row) noexcept nogil:
        # a request that ran elsewhere before has outputs, which are recomputed
        cdef int64_t text = <int64_t>self._requests[row].prompt_tokens + self._requests[row].output_tokens
        if text > self.longest_prompt:
            return REJECTED
        return DROPPED if self.kv.whole_blocks(text) > self.kv.num_blocks else PENDING

    cdef int64_t longest_surely_taken(self) noexcept nogil:
        return -1

    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        return 0

    cdef bint repeats(self) noexcept nogil:
        return False

    cdef bint keeps_turns(self) noexcept nogil:
        return False

    cdef bint feeds(self, const Batch* batch) noexcept nogil:
        return batch.shape.num_samples > 0

    cdef int enqueue(self, int32_t row) except -1 nogil:
        self._requests[row].status = WAITING
        return self.waiting.push(row)

    cdef void forget(self) noexcept nogil:
        if self.tally is not None and self.tally.slots is not None:
            self.tally.slots.forget()

    cdef bint holds_adapter(self, int32_t adapter, int64_t now_ns) noexcept nogil:
        return False

    cdef int update(self, const Entry* entry, int32_t sampled, int32_t rejected, bint goes_on) except -1 nogil:
        self._sequences[entry.slot].num_tokens += sampled
        self._sequences[entry.slot].num_computed -= rejected
        return 0

    # ---- the running list

    cdef int64_t computed(self, int32_t slot) noexcept nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        if not sequence.is_member:
            return sequence.num_computed
        if self.turn_tokens > 1:
            return self.computed_multi_token(slot)
        if sequence.group == self.group:
            return self.iteration + sequence.offset
        return self._groups[sequence.group].iteration + sequence.offset

    cdef int64_t last_token_ns(self, int32_t slot, int64_t last_end_ns) noexcept nogil:
        cdef int32_t turns = self.turns_in_flight(slot)
        cdef const Sequence* sequence = &self._sequences[slot]
        if turns == 0 or self.num_standing > 0:
            return last_end_ns
        if self.turn_interval > 0:              # it is in each batch of its group that is in flight
            return self.ended_ns if sequence.group == self.group else self._groups[sequence.group].ended_ns
        if sequence.group != self.group:
            return self.token_before_ns(self._groups[sequence.group].in_flight[0])
        return self.token_before_ns(self._in_flight[turns - 1])

    cdef int32_t top_slot(self) except -1 nogil:
        if self._num_free_slots == 0:
            self._grow()
        return self._free_slots[self._num_free_slots - 1]

    cdef int _grow(self) except -1 nogil:
        cdef int32_t before = self.num_slots, i
        cdef int32_t after = min(max(<int32_t>FIRST_SLOTS, 2 * before), max(self.max_running, before + 1))
        resize_lines(&self._sequences, before * sizeof(Sequence), after * sizeof(Sequence))
        resize(&self._free_slots, after * sizeof(int32_t))
        resize(&self._prefilling, after * sizeof(int32_t))
        self._links.grow(after)
        self.kv.reserve_slots(after)
        if self.multi_token is not None:
            self.multi_token.reserve(after)
        memset(self._sequences + before, 0, (after - before) * sizeof(Sequence))
        for i in range(before, after):
            self._sequences[i].row = -1
        for i in range(after - before):
            self._free_slots[self._num_free_slots + i] = after - 1 - i
        self._num_free_slots += after - before
        self.num_slots = after
        return 0

    cdef int admit(self, int32_t row, int32_t hits, Batch* batch) except -1 nogil:
        cdef int32_t slot = self._occupy(row)
        self._sequences[slot].num_computed = hits * self.kv.hit_tokens
        self._append(slot, batch)
        return slot

    cdef int finish(self, int32_t slot) except -1 nogil:
        return self._leave_copying(slot, False) if self.copies else self._vacate(slot, False)

    cdef void sort_finished(self, int32_t* slots, int32_t count) noexcept nogil:
        sort_by_order(slots, count, self._sequences)

    cdef int abort(self, int32_t slot) except -1 nogil:
        return self._leave_copying(slot, True) if self.copies else self._vacate(slot, False)

    cdef int _leave_copying(self, int32_t slot, bint is_aborted) except -1 nogil:
        """Remove a sequence where the tier copies: free its blocks when no batch in flight writes to them."""
        self._leave_tier(slot)
        if self.kv.is_hybrid:
            self.kv.slide(slot, self.settled(slot))
        if self._puts_off_frees and (self.num_in_flight > 1 if is_aborted else self.is_in_flight(slot)):
            return self._put_off_free(slot)
        return self._vacate(slot, False)

    cdef bint _may_join(self, const Entry* entry) noexcept nogil:
        cdef int64_t computed = self._sequences[entry.slot].num_computed
        if self.copies and not self.tier.is_through_with(entry.slot, self._sequences[entry.slot].row):
            return False
        if (self.tier is not None and self.multi_token is None and not self.kv.is_hybrid  # for a missing token
                and self.kv.owned(entry.slot) > blocks_for(computed + self.kv.ahead_tokens, self.kv.block_size)):
            return False
        return not self.kv.is_hybrid or ((self.lead == 0 or entry.tokens == 1) and self.kv.may_join(
            entry.slot, computed))

    cdef int _vacate(self, int32_t slot, bint returns) except -1 nogil:
        self._stop(slot)
        self.kv.release(slot, returns)
        self._sequences[slot].row = -1
        self._free_slots[self._num_free_slots] = slot
        self._num_free_slots += 1
        return 0

    cdef void _add_prefilling(self, int32_t slot) noexcept nogil:
        cdef int32_t i = self._num_prefilling
        while i > 0 and self._sequences[self._prefilling[i - 1]].order > self._sequences[slot].order:
            self._prefilling[i] = self._prefilling[i - 1]
            i -= 1
        self._prefilling[i] = slot
        self._num_prefilling += 1

    cdef void _drop_prefilling(self, int32_t slot) noexcept nogil:
        cdef int32_t i = 0
        while self._prefilling[i] != slot:
            i += 1
        self._num_prefilling -= 1
        while i < self._num_prefilling:
            self._prefilling[i] = self._prefilling[i + 1]
            i += 1

    cdef int preempt(self, int32_t slot, Batch* batch) except -1 nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        cdef Preempted* record = &batch.preempted[batch.num_preempted]
        cdef int32_t row = sequence.row, free_before = self.kv.free_blocks
        record.slot = slot
        record.row = row
        record.late_ns = sequence.late_ns
        record.was_member, record.gave_way = sequence.is_member, False
        batch.num_preempted += 1
        self.preemptions += 1
        self._requests[row].preemptions += 1
        self._requests[row].status = WAITING
        if sequence.is_member:
            self._requests[row].output_tokens = self.outputs(slot)
            if self.overlaps:
                record.late_ns += batch.start_ns - self.last_token_ns(slot, batch.start_ns)
                if sequence.num_placeholders > 0:
                    record.late_ns = NO_TOKEN
                self.part(slot)
        if self._stale != NULL and not (self.tier is not None and self.tier.drops_stale_tokens):
            self._stale[row] = sequence.in_flight
        self._vacate(slot, True)
        record.freed_blocks = self.kv.free_blocks - free_before
        return 0

    cdef int32_t slot_of(self, int32_t row) noexcept nogil:
        cdef int32_t slot = self._running.head
        while slot >= 0 and self._sequences[slot].row != row:
            slot = self._links.next(slot)
        return slot

    # ---- the batch

    cdef void add_entry(self, Batch* batch, int32_t slot) noexcept nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        cdef Entry* entry = &batch.entries[batch.num_entries]
        entry.order = sequence.order
        entry.slot = slot
        entry.row = sequence.row
        entry.tokens = sequence.scheduled
        entry.drafts = sequence.scheduled_drafts
        entry.is_admission = sequence.is_new
        batch.num_entries += 1

    cdef void close(self, Batch* batch, int32_t drafts) noexcept nogil:
        cdef BatchShape* shape = &batch.shape
        cdef Sequence* sequence
        cdef Entry* entry
        cdef Chunk* chunk
        cdef int32_t i
        if self.tells_spread and self.turn_tokens == 1:
            self._tell_spread(batch)
        shape.num_samples = shape.num_decodes = batch.num_members
        shape.decode_tokens = <int64_t>batch.num_members * self.turn_tokens
        for i in range(batch.num_entries):
            entry = &batch.entries[i]
            sequence = &self._sequences[entry.slot]
            if sequence.is_decoding:
                shape.num_decodes += 1
                shape.decode_tokens += entry.tokens
                shape.context_tokens += sequence.num_computed + entry.tokens
            else:
                chunk = &batch.chunks[shape.num_chunks]
                chunk.tokens = entry.tokens
                chunk.context_tokens = sequence.num_computed
                chunk.prompt_tokens = sequence.num_tokens
                count_chunk(shape, chunk)
            sequence.num_computed += entry.tokens
            sequence.in_flight += entry.tokens
            sequence.is_new = False
            sequence.is_partial = sequence.num_computed < sequence.num_tokens + sequence.num_placeholders
            entry.is_partial = sequence.is_partial
            if not sequence.is_partial:
                shape.num_samples += 1
                sequence.is_decoding = True         # in the next batch: its token is then in, or in flight
                if drafts >= 0:
                    sequence.num_placeholders += 1 + entry.drafts
                    sequence.num_drafts = drafts
                    if self.turn_interval > 0:
                        self._eligible[entry.row] = self.step + self.turn_interval
        shape.num_sequences, shape.chunks = batch.num_members + batch.num_entries, batch.chunks
        if self.tally is not None:
            self._take_tally(batch)

    cdef void _tell_spread(self, Batch* batch) noexcept nogil:
        """Set the spread of the context lengths of decoding sequences; called before tokens are counted as computed."""
        cdef int32_t slot = self._running.head if batch.num_members > 0 else -1, i
        cdef int64_t longest = 0, shortest = 0, total = 0, count = 0, context
        cdef const Sequence* sequence
        while slot >= 0:
            sequence = &self._sequences[slot]
            if sequence.is_member and sequence.group == self.group and not (
                    batch.num_starved > 0 and sequence.is_starved):
                context = self.iteration + sequence.offset + 1
                longest, shortest = max(longest, context), min(shortest, context) if count > 0 else context
                total += context
                count += 1
            slot = self._links.next(slot)
        for i in range(batch.num_entries):
            sequence = &self._sequences[batch.entries[i].slot]
            if sequence.is_decoding:
                context = sequence.num_computed + batch.entries[i].tokens
                longest, shortest = max(longest, context), min(shortest, context) if count > 0 else context
                total += context
                count += 1
        if count > 0:
            batch.shape.below_longest_tokens = count * longest - total
            batch.shape.above_shortest_tokens = total - count * shortest

    cdef void _take_tally(self, Batch* batch) noexcept nogil:
        cdef int32_t slot = self._running.head if batch.num_starved > 0 and not batch.stands_still else -1, i
        self.tally.begin(&batch.shape, self.group, self.turn_tokens - 1, batch.num_starved == 0)
        while slot >= 0:
            if (self._sequences[slot].is_member and self._sequences[slot].group == self.group
                    and not self._sequences[slot].is_starved):
                self.tally.visit(&batch.shape, self._sequences[slot].row, self.turn_tokens)
            slot = self._links.next(slot)
        for i in range(batch.num_entries):
            if batch.entries[i].tokens > 0:
                self.tally.visit(&batch.shape, batch.entries[i].row, (
                    0 if batch.entries[i].is_partial else 1 + batch.entries[i].drafts))
        if self.tally.has_ranks and batch.shape.num_adapters > 0:
            batch.shape.largest_rank = self.tally.largest_rank()
        if self.tally.slots is not None and (
                batch.num_entries > 0 or batch.num_starved > 0 or self.tally.unsettled > 0):
            self.tally.load(batch)

    # ---- the group

    cdef int32_t _phase_of(self, int64_t offset) noexcept nogil:
        cdef int64_t phase = -offset % self.kv.block_size
        return <int32_t>(phase + self.kv.block_size if phase < 0 else phase)

    cdef int join(self, int32_t slot) except -1 nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        self._drop_prefilling(slot)
        sequence.is_member = True
        sequence.late_ns = 0
        sequence.scheduled = 0
        sequence.group = <int16_t>self.group
        sequence.offset = sequence.num_computed - self.iteration
        self.num_members += 1
        if self.tally is not None:
            self.tally.join(sequence.row, self.group)
        self.member_tokens += sequence.num_computed + 1
        if sequence.order > self._last_member_order:
            self._last_member_order = sequence.order
        return self.kv.join(slot, self._phase_of(sequence.offset), sequence.order)

    cdef void leave(self, int32_t slot) noexcept nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        cdef int64_t computed = self.iteration + sequence.offset
        if self.turn_tokens > 1:
            self.leave_multi_token(slot)
            return
        sequence.is_member = False
        self.num_members -= 1
        if self.tally is not None:
            self.tally.leave(sequence.row, sequence.group)
        self.member_tokens -= computed + 1
        self.kv.leave(slot, self._phase_of(sequence.offset))
        if not sequence.scheduled:              # else its blocks were settled and grown individually
            self.kv.settle(slot, computed)

    cdef void part(self, int32_t slot) noexcept nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        cdef int32_t turns, outputs, i, at_hand = self.group
        cdef Entry entry
        self.turn_to(sequence.group)
        turns, outputs = self.turns_in_flight(slot), self.outputs(slot)
        self.leave(slot)
        memset(&entry, 0, sizeof(Entry))
        entry.order, entry.slot, entry.row, entry.tokens = sequence.order, slot, sequence.row, 1
        for i in range(turns):
            insert_entry(self._in_flight[i], &entry)
            self._in_flight[i].num_members -= 1
        if self.turn_interval > 0 and turns > 0:
            self._eligible[sequence.row] = self._in_flight[0].step + self.turn_interval
        self._requests[sequence.row].output_tokens = outputs
        sequence.num_tokens = sequence.prompt_tokens + outputs
        sequence.num_computed = <int32_t>(self.iteration + sequence.offset)
        sequence.num_placeholders += turns
        sequence.in_flight += turns
        self._add_prefilling(slot)
        self.turn_to(at_hand)

    cdef void _part_in_flight(self, int32_t slot) noexcept nogil:
        cdef const Sequence* sequence = &self._sequences[slot]
        if sequence.is_member and (sequence.group != self.group or self.turns_in_flight(slot) > 0):
            self.part(slot)

    cdef int starve(self, int32_t slot) except -1 nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        if self.overlaps:
            return 0
        self.kv.leave(slot, self._phase_of(sequence.offset))
        sequence.offset -= 1
        self.member_tokens -= 1
        return self.kv.join(slot, self._phase_of(sequence.offset), sequence.order)

    cdef int repeat(self, int32_t count) except -1 nogil:
        cdef int32_t first = self.phase
        self.iteration += count
        self.phase = <int32_t>(self.iteration % self.kv.num_phases)
        self.member_tokens += <int64_t>count * self.num_members
        if self.tally is not None:
            self.tally.repeat(self.group)
        return self.kv.step_run(first, count)

    cdef void repeat_of(self, int32_t group, int32_t num_ended, int32_t num_formed, int64_t ended_ns) noexcept nogil:
        self.turn_to(group)
        self.iteration += num_formed
        self.phase = <int32_t>(self.iteration % self.kv.num_phases)
        self.member_tokens += <int64_t>num_formed * self.num_members
        self.num_in_flight += num_formed - num_ended
        if self.tally is not None and num_formed > 0:
            self.tally.repeat(group)
        if num_ended > 0:
            self.ended_ns = ended_ns

    cdef void fly(self, Batch* batch) noexcept nogil:
        self.turn_to(batch.group)
        self._in_flight[1] = self._in_flight[0]
        self._in_flight[0] = batch
        self.step = batch.step
        if self.tally is not None:
            self.tally.repeat(batch.group)

    # ---- multi-token members: none, unless the policy is a MultiTokenScheduler

    cdef int verify_by(self, Acceptance acceptance, DraftCounts counts) except -1:
        return 0

    cdef int64_t join_multi_token(self, const Entry* entry, int32_t sampled, int32_t left) except -2 nogil:
        return -1

    cdef int64_t computed_multi_token(self, int32_t slot) noexcept nogil:
        return 0

    cdef int repeat_multi_token(self, int32_t count) except -1 nogil:
        return 0

    cdef void leave_multi_token(self, int32_t slot) noexcept nogil:
        pass

    cdef void count_multi_token(self, int32_t slot) noexcept nogil:
        pass

    cdef int fall_out(self, int32_t slot) except -1 nogil:
        self.leave(slot)
        self._add_prefilling(slot)
        return 0

    # ---- sequences that own KV without running

    cdef int32_t reserve(self, int32_t row, int64_t num_tokens, int64_t num_computed) except -2 nogil:
        cdef int32_t slot = self.top_slot(), hits
        hits = self.kv.lookup(row, <int32_t>num_computed + 1)
        if not self.kv.allocate(slot, row, hits, num_computed, 0, 0, 0):
            return -1
        self._occupy_parked(slot, row, num_tokens, hits * self.kv.hit_tokens)
        return slot

    cdef void _occupy_parked(self, int32_t slot, int32_t row, int64_t num_tokens, int64_t num_computed) noexcept nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        self._num_free_slots -= 1
        memset(sequence, 0, sizeof(Sequence))
        sequence.row, sequence.num_tokens, sequence.num_computed = row, <int32_t>num_tokens, <int32_t>num_computed
        self._links.push_back(&self._parked, slot)
        self.loading += 1
        self.loading_tokens += num_tokens

    cdef bint extend(self, int32_t slot, int64_t num_tokens, int64_t num_computed) except -1 nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        if not self.kv.allocate(slot, sequence.row, 0, num_computed, 0, 0, 0):
            return False
        self.loading_tokens += num_tokens - sequence.num_tokens
        sequence.num_tokens = <int32_t>num_tokens
        return True

    cdef int receive(self, int32_t slot, const Sequence* sequence) except -1 nogil:
        cdef Sequence* own = &self._sequences[slot]
        self.loading -= 1
        self.loading_tokens -= own.num_tokens
        own[0] = sequence[0]
        self.kv.cache(slot, own.num_computed)
        self.unpark(slot)
        return 0

    cdef int cancel(self, int32_t slot) except -1 nogil:
        self.loading -= 1
        self.loading_tokens -= self._sequences[slot].num_tokens
        return self.release_parked(slot)

    cdef int park(self, int32_t slot) except -1 nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        cdef int32_t row = sequence.row
        if sequence.is_member and self.overlaps:
            self.part(slot)
        if sequence.is_member:
            self._requests[row].output_tokens = self.outputs(slot)
            sequence.num_computed = <int32_t>self.computed(slot)
        if self._stale != NULL:
            self._stale[row] = sequence.in_flight
        self._requests[row].status = WAITING
        self._stop(slot)
        self._links.push_back(&self._parked, slot)
        if self.stale_tokens(row) == 0:
            self.settle_parked(slot)
        return 0

    cdef void settle_parked(self, int32_t slot) noexcept nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        sequence.num_tokens = sequence.prompt_tokens + self._requests[sequence.row].output_tokens
        sequence.num_computed = min(sequence.num_computed, sequence.num_tokens - 1)     # less rejected drafts
        sequence.in_flight = sequence.num_placeholders = sequence.scheduled = sequence.scheduled_drafts = 0
        sequence.late_ns = 0

    cdef int release_parked(self, int32_t slot) except -1 nogil:
        cdef bint returns = self.transfers is None and self._requests[self._sequences[slot].row].status < COMPLETED
        self.kv.release(slot, returns)          # a request that moves may be back, and find its blocks
        return self._give_back_parked(slot)

    cdef int _give_back_parked(self, int32_t slot) noexcept nogil:
        self._links.remove(&self._parked, slot)
        self._sequences[slot].row = -1
        self._free_slots[self._num_free_slots] = slot
        self._num_free_slots += 1
        return 0

    cdef void unpark(self, int32_t slot) noexcept nogil:
        self._links.remove(&self._parked, slot)
        self._links.push_back(&self._arrived, slot)
        self.run_arrived()

    cdef int32_t arrived_slot(self, int32_t row) noexcept nogil:
        cdef int32_t slot = self._arrived.head
        while slot >= 0 and self._sequences[slot].row != row:
            slot = self._links.next(slot)
        return slot

    cdef int drop_arrived(self, int32_t row) except -1 nogil:
        cdef int32_t slot = self.arrived_slot(row)
        self._links.remove(&self._arrived, slot)
        self._links.push_back(&self._parked, slot)
        return self.release_parked(slot)

    cdef void run_arrived(self) noexcept nogil:
        cdef int32_t slot
        while self._arrived.size > 0 and self._running.size < self.max_running:
            slot = self._links.pop_front(&self._arrived)
            self._sequences[slot].order = self._next_order
            self._next_order += 1
            self._links.push_back(&self._running, slot)
            if self.grouping:
                self._prefilling[self._num_prefilling] = slot
                self._num_prefilling += 1
            self._requests[self._sequences[slot].row].status = RUNNING

    # ---- a tier beyond the blocks

    cdef int hold(self, int32_t row, int32_t hits, External found, int64_t now_ns) except -1 nogil:
        cdef int32_t slot = self.top_slot()
        cdef int64_t done_ns = self.tier.load(row, slot, found, now_ns)
        if done_ns != NEVER_NS:
            self.transfers.begin(LOAD, slot, done_ns)
        self.transfers.tell(b"later", row, found.tokens)
        self._occupy(row)
        self._sequences[slot].num_computed = hits * self.kv.hit_tokens + <int32_t>found.tokens
        self._sequences[slot].hold = LOADING
        self._queue_held(slot)
        self.loading += 1
        self.loading_tokens += self._sequences[slot].num_tokens
        return 0

    cdef void _queue_held(self, int32_t slot) noexcept nogil:
        cdef int32_t before = self._held.tail, row = self._sequences[slot].row
        while before >= 0 and self.waiting.precedes(row, self._sequences[before].row):
            before = self._links.prev(before)
        if before >= 0:
            self._links.insert_after(&self._held, before, slot)
        else:
            self._links.push_front(&self._held, slot)

    cdef int load_now(self, int32_t slot, External found, int64_t now_ns) except -1 nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        cdef Request* request = &self._requests[sequence.row]
        sequence.num_computed += <int32_t>found.tokens
        if request.scheduled_ns == now_ns:                  # for the first time
            request.cached_tokens = min(sequence.num_computed, request.prompt_tokens)
        self.transfers.tell(b"now", sequence.row, found.tokens)
        self.tier.load(sequence.row, slot, found, now_ns)
        sequence.is_decoding = self.tier.has_first_token(sequence.row)
        return 0

    cdef int settle_held(self, int32_t slot) except -1 nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        self.kv.cache(slot, sequence.num_computed)
        sequence.num_computed -= sequence.num_computed == sequence.num_tokens
        return 0

    cdef int run_held(self, int32_t slot, Batch* batch) except -1 nogil:
        self.kv.announce_all(slot)
        self._unhold(slot)
        return self._append(slot, batch)

    cdef int run_parked(self, int32_t slot, Batch* batch) except -1 nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        self._links.remove(&self._parked, slot)
        self.loading -= 1
        self.loading_tokens -= sequence.num_tokens
        sequence.prompt_tokens = self._requests[sequence.row].prompt_tokens
        sequence.num_computed = sequence.prompt_tokens
        sequence.num_tokens = sequence.prompt_tokens + 1
        sequence.is_decoding = True
        return self._append(slot, batch)

    cdef void _unhold(self, int32_t slot) noexcept nogil:
        self._links.remove(&self._held, slot)
        self.loading -= 1
        self.loading_tokens -= self._sequences[slot].num_tokens

    cdef bint drop_held(self, int32_t row) except -1 nogil:
        cdef int32_t slot = self._held.head
        while slot >= 0 and self._sequences[slot].row != row:
            slot = self._links.next(slot)
        if slot < 0:
            return False
        self._unhold(slot)
        self._links.push_back(&self._parked, slot)
        if self._sequences[slot].hold == LOADING:
            self._sequences[slot].hold = GIVEN_UP
        else:
            self.release_parked(slot)
        self.gives_up(row)
        return True

    cdef int drop_all_held(self, RowList* rows) except -1 nogil:
        cdef int32_t slot
        if self.transfers is None:
            return 0
        self.transfers.clear()
        self.tier.fail()
        self._put_off.size = self.seeded.size = 0
        while self._held.size > 0:
            slot = self._held.head
            add_row(rows, self._sequences[slot].row)
            self._unhold(slot)
            self._links.push_back(&self._parked, slot)
        while self._parked.size > 0:
            self.release_parked(self._parked.head)
        return 0

    cdef bint _keep(self, int32_t slot, int64_t now_ns) except -1 nogil:
        cdef int64_t until_ns = self.tier.keep_until(self._sequences[slot].row, slot, now_ns)
        if until_ns < 0:
            return False
        if self.copies:
            self._leave_tier(slot)
        if self.kv.is_hybrid:
            self.kv.slide(slot, self.settled(slot))
        self.transfers.begin(KEEP, slot, max(until_ns, now_ns + 1))     # not with the report of this very iteration
        self._stop(slot)
        self._sequences[slot].hold = GIVEN_UP
        self._links.push_back(&self._parked, slot)
        return True

    cdef int note_transfers(self, int64_t now_ns) except -1 nogil:
        cdef int32_t kind = 0, slot = self.transfers.take(now_ns, &kind)
        while slot >= 0:
            self._arrive(slot, kind == LOAD)
            slot = self.transfers.take(now_ns, &kind)
        return 0

    cdef int _arrive(self, int32_t slot, bint is_load) except -1 nogil:
        self.transfers.tell(b"came" if is_load else b"read", self._sequences[slot].row, 0)
        if self._sequences[slot].hold == GIVEN_UP:
            return self.release_parked(slot)
        return self._end_load(slot)

    cdef int _end_load(self, int32_t slot) except -1 nogil:
        """Resume a request after its load has ended; if no KV arrived, with its own cached blocks."""
        cdef Sequence* sequence = &self._sequences[slot]
        cdef int32_t row = sequence.row
        cdef int64_t tokens = self.tier.loaded_tokens(row)
        cdef LoadEnd end = self.tier.load_end(row)
        sequence.hold = FAILED_LOAD if end == LOAD_FATAL else LOADED
        if end == LOAD_CAME and self.tier.has_first_token(row):
            return add_row(&self.seeded, slot)
        if end != LOAD_LOST:
            return 0
        sequence.num_computed -= <int32_t>tokens
        self._asks_who_joins = True                 # it may have a block for a missing token, too
        if self.kv.is_hybrid:                       # the missing blocks of a group are unknown
            sequence.num_computed = 0
        if sequence.num_computed > 0:
            return 0
        self._unhold(slot)
        self._links.push_back(&self._parked, slot)
        self.release_parked(slot)
        return self.waiting.push_front(row)

    cdef int _tell_tier(self, Batch* batch) except -1 nogil:
        cdef const Sequence* sequence
        cdef int32_t i
        for i in range(batch.num_preempted):
            self.tier.preempted(batch.preempted[i].row)
        for i in range(batch.num_entries):
            sequence = &self._sequences[batch.entries[i].slot]
            self.tier.computes(batch.entries[i].slot, sequence.row, sequence.num_computed, sequence.num_tokens)
        return self.tier.plan()

    cdef int end_step(self, const Batch* batch) except -1 nogil:
        cdef int32_t kind = 0, slot = -1
        if not self.transfers.is_quiet():
            slot = self.transfers.take_polled(batch.num_polled, &kind)
        while slot >= 0:
            self._arrive(slot, kind == LOAD)
            slot = self.transfers.take_polled(batch.num_polled, &kind)
        slot = self.tier.take_loaded(batch.num_done)
        while slot >= 0:
            self._arrive(slot, True)
            slot = self.tier.take_loaded(batch.num_done)
        return 0

    cdef int64_t _next_transfer_ns(self) noexcept nogil:
        return min(self.transfers.next_ns(), self.tier.next_end_ns())

    cdef int64_t quiet_until_ns(self) noexcept nogil:
        if self._put_off.size > 0 or not self.transfers.is_quiet():
            return 0
        if self.tier.may_lag():
            return self.transfers.next_ns()
        return self._next_transfer_ns() if self.tier.is_quiet() else 0

    cdef int _leave_tier(self, int32_t slot) except -1 nogil:
        cdef int32_t row = self._sequences[slot].row
        return self.tier.leaves(slot, row, self.computed(slot),
                                self._sequences[slot].prompt_tokens + <int64_t>self._requests[row].output_tokens)

    cdef int _put_off_free(self, int32_t slot) except -1 nogil:
        self._stop(slot)
        self._links.push_back(&self._parked, slot)
        self._sequences[slot].hold = GIVEN_UP
        return add_row(&self._put_off, slot)

    cdef int _free_put_off(self) except -1 nogil:
        cdef int32_t i
        for i in range(self._put_off.size):
            self.kv.release_late(self._put_off.rows[i])
            self._give_back_parked(self._put_off.rows[i])
        self._put_off.size = 0
        return 0

    cdef int drop(self, int32_t slot) except -1 nogil:
        self._requests[self._sequences[slot].row].status = WAITING
        return self._vacate(slot, True)

    def lost_rows(self):
        """Return the rows of requests that were ended while they ran, since no KV block was left for them."""
        return []

    def counts(self):
        """Return counts so far for the results, by name.

        A value is a number, a list of numbers, or a dict; a run has the sums over replicas, see `Run.counts`.
        """
        return {"kv_allocation_failures": self.preemptions}     # each preempted a request

    def advice(self, stall_reason):
        """Return advice for a replica that cannot go on, as the end of a sentence.

        stall_reason : "livelock": requests preempt each other for ever; "too large": the queue's head needs more KV
            blocks than there are; "passed over": it needs no more, but is not admitted; "left alone": running requests
            get no tokens.
        """
        return ADVICE[stall_reason]

    def limits(self):
        """Return why requests are rejected: limits of prompts in tokens, with ends of a sentence; the first counts.

        -1: a reason other than length, for requests within all limits.
        """
        return ((self.longest_prompt, f"are longer than max_model_len = {self.longest_prompt + 1:,} allows"),)

    def why_dropped(self):
        """Return why requests are dropped before they wait, as the end of a sentence."""
        return f"need more KV blocks than the {self.kv.num_blocks:,} of a replica"

    # ---- the debug face

    def check(self):
        """Raise RuntimeError unless running list, slots, group and their blocks agree."""
        cdef int32_t slot, members = 0, index, counted_members = 0
        cdef int64_t counted_tokens = 0, tokens = 0, owned = 0, known
        slots = [slot for which in (self._running, self._parked, self._arrived, self._held)
                 for slot in self.slots(which.head)]
        self._links.check_list(&self._running)
        self.waiting.check()
        if len(slots) + self._num_free_slots != self.num_slots:
            raise RuntimeError(f"{len(slots)} in use + {self._num_free_slots} free != {self.num_slots} slots")
        for slot in slots:
            if self._sequences[slot].row < 0:
                raise RuntimeError(f"slot {slot} is in use without a request")
            if self._sequences[slot].is_member:
                members += 1
                tokens += self.computed(slot) + self.turn_tokens
            known = self.computed(slot)
            if self.multi_token is not None and self._sequences[slot].is_member:
                known = self.multi_token.before(slot, self.iteration).computed + 1
            owned += self.kv.owned_blocks(slot, self._sequences[slot].is_member, known)
        for index in range(self.num_groups):
            counted_members += self.group_at(index).num_members
            counted_tokens += self.group_at(index).member_tokens
        if (members, tokens) != (counted_members, counted_tokens):
            raise RuntimeError(
                f"{members} members hold {tokens} tokens, {counted_members} and {counted_tokens} counted")
        if self.multi_token is not None:
            self.multi_token.check([(slot, self.iteration) for slot in slots if self._sequences[slot].is_member])
        if self.encoder is not None:
            self.encoder.check([self._sequences[slot].row for slot in self.slots()
                                if not self._sequences[slot].is_member])
        self.kv.check(owned)

    def running_rows(self):
        """Return the rows of the running list, in order."""
        return [self._sequences[slot].row for slot in self.slots()]

    def held_rows(self):
        """Return the rows that wait holding blocks for KV from the tier, in order."""
        return [self._sequences[slot].row for slot in self.held_slots()]

    def held_slots(self):
        """Return the slots of held_rows()."""
        return [*self.slots(self._held.head)] if self._held.size > 0 else []

    def slots(self, int32_t first=-2):
        """Yield the slots of the running list, or those linked from `first` on."""
        cdef int32_t slot = self._running.head if first == -2 else first
        while slot >= 0:
            yield slot
            slot = self._links.next(slot)
