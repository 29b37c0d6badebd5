"""`vllm`: continuous batching as in vLLM V1.

There is no prefill and no decode phase: every iteration brings each request's computed tokens up to its text (prompt
and outputs), running requests first and in order of admission, then waiting ones, within a token budget. Where blocks
run out, running requests are preempted, to be recomputed later. Source: vLLM 0.32.0, and 0.10.1 and 0.33.0
where `vllm_version` says so, vllm/v1/core/sched/{scheduler,async_scheduler}.py.
"""
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.domain.batch cimport clear_shape
from simulator.domain.request cimport Request
from simulator.kv.base cimport blocks_for
from simulator.kv.hybrid.tables cimport GroupTables
from simulator.kv.retaining cimport RetainingKV
from simulator.kv.tier cimport UNDECIDED, External
from simulator.scheduling.adapters cimport Adapters
from simulator.scheduling.aligned_chunks cimport AlignedText, aligned_chunk
from simulator.core.clock cimport NEVER_NS
from simulator.core.row_list cimport add_row, has_row
from simulator.scheduling.base cimport LOADED, Sequence
from simulator.scheduling.encoding cimport EncodingScheduler
from simulator.scheduling.grammars cimport Grammars
from simulator.domain.iteration cimport Batch, Entry
from simulator.scheduling.waiting_queue cimport FIRST_COME, PRIORITY_HERE, WaitingQueue

from msgspec.structs import replace

from simulator.domain.vllm_versions import behaviour_of
from simulator.errors import InputErrors, KeyFault
from simulator.kv.counting import CountingKV
from simulator.kv.hybrid.cache import HybridKV
from simulator.kv.hybrid.kinds import HitRules, unit_of
from simulator.kv.paged import PagedKV
from simulator.kv.sparse import SparseKV
from simulator.scheduling.base import SchedulerFacts
from simulator.scheduling.drafters import mask_slots
from simulator.scheduling.engine_memory import vllm_needs
from simulator.scheduling.vllm_defaults import completed, defaults
from simulator.scheduling.vllm_overheads import around
from simulator.scheduling.vllm_extras import new_encoder, new_grammars, new_tally, retaining
from simulator.scheduling.vllm_arguments import (
    ADVICE, TOO_MANY_AT_ONCE, WHY_NO_ASYNC_STAGES, VllmParameters, drops_last_hit, group_faults, hashes_ahead,
    item_faults, label_faults, most_running, start_up_faults, why_no_tier)

cdef enum:                      # outcome for the head of the queue
    STOP                        # nothing more is admitted in this iteration
    SKIP                        # it is passed over for this iteration
    PARKED                      # it is parked until it can be admitted
    ADMITTED
    ELIGIBLE                    # no objection so far


cdef struct Turn:               # tokens of a request in an iteration
    int64_t tokens
    int32_t drafts              # dummy drafts among them


@cython.final
cdef class Vllm(EncodingScheduler):
    """Iterations of a token budget; see `VllmParameters`."""

    Parameters = VllmParameters

    cdef int32_t _threshold             # longest chunk of a prompt, in tokens; 0: no limit
    cdef int32_t _batched_tokens        # max_num_batched_tokens: shared out by the adaptive threshold
    cdef int64_t _last_prompts          # iterations begun up to the last one with a part of a prompt
    cdef bint _threshold_adapts         # long_prefill_token_threshold_adaptive
    cdef bint _threshold_when_alone     # 0.10: the threshold also holds for a request that is alone
    cdef bint _chunked_prefill          # a prompt may be computed over several iterations
    cdef bint _skips_long_prompts       # 0.10, no chunked prefill: prompts longer than the budget are overtaken
    cdef bint _by_priority              # policy: the victim is the worst by (priority, arrival), not the last admitted
    cdef bint _mends_victims            # 0.32: a victim's tokens are given back and the next request keeps its turn
    cdef bint _goes_on                  # 0.33, by priority: a sequence that preempts itself ends no pass
    cdef bint _reserves_full_text       # a text is admitted only if all its blocks are free
    cdef int32_t _watermark_blocks      # blocks kept free at admission while anything runs
    cdef bint _is_async                 # async_scheduling
    cdef bint _caches_at_end            # 0.33: blocks are hashed when an iteration ends, also with drafts
    cdef bint _counts_idle_adapters     # 0.33: adapters of all running sequences count, with tokens in a batch or not
    cdef bint _avoids_extra_step        # 0.32: async schedules nothing for requests that the step in flight will end
    cdef bint _samples                  # a place behind the text is kept for the sampled token; not for pooling
    cdef int32_t _num_drafts            # per step; 0: no speculation
    cdef int32_t _mask_slots            # of each scheduled request: masks of a drafter that makes one pass
    cdef int32_t _slots_taken           # by masks, in the iteration being formed
    cdef bint _skips_drafts             # 0.33: none are computed that no sequence can verify
    cdef int32_t _lookahead_at_admission        # slots reserved ahead at admission; 0.10: none
    cdef bint _pads_admissions          # 0.32: a one-token admission is padded with dummy drafts
    cdef bint _queue_may_turn           # a blocked request may be admitted later, while members go on: see `repeats`
    cdef int32_t _tail_unit             # a chunk of a prompt ends at the last multiple of it, too; 0: not
    cdef Grammars _grammars             # of requests; None: no request has one
    cdef Adapters _adapters             # of requests that a batch has room for; None: of any
    cdef bint _may_park                 # no pass was made yet that lets waiting rows be parked by cause
    cdef uint8_t* _passed_over          # [n / 8] 0.33: bits, passed over since a request began to wait; NULL: not noted
    cdef int32_t _num_noted             # requests that are noted there if prompts are held at intervals; 0: none
    cdef int32_t _interval              # 0.33, prefill_schedule_interval: iterations from prompt to prompt; 1: any
    cdef bint _admits_prompts           # an admission of the batch being formed computes more than a token
    cdef bint _passes_over_items        # 0.33: requests with a first item that does not fit are passed over
    cdef bint _may_hold_running         # 0.33: prompts that have begun may wait, for an interval or for room for items
    cdef bint _holds_now                # prompts are not computed in this batch, see _must_hold
    cdef bint _has_no_room              # the last pass that admitted all it could left a request waiting
    cdef bint _has_extras               # grammars, adapters, encoders or groups of layers
    cdef bint _chunk_continues          # a chunk of a prompt was scheduled among running sequences
    cdef RetainingKV _retaining         # its KV cache, if it holds blocks for programs; None: another one

    def __init__(self, parameters, context):
        parameters = completed(parameters)
        behaviour = behaviour_of(parameters.vllm_version)
        self.max_running = most_running(parameters)
        # A running prompt's last chunk may not reach max_model_len. Unchunked, the scheduler computes prompts whole,
        # and one token longer; vLLM's server refuses such prompts before that. Pooling reserves no place for a token.
        self._samples, self._batched_tokens = parameters.task == "generate", parameters.max_num_batched_tokens
        self.longest_prompt = context.max_model_len - (self._samples and (
            parameters.enable_chunked_prefill or context.behind_server))
        self._token_budget = min(parameters.max_num_scheduled_tokens or self._batched_tokens, self._batched_tokens)
        self._max_model_len = context.max_model_len
        self._threshold = parameters.long_prefill_token_threshold
        self._threshold_adapts = parameters.long_prefill_token_threshold_adaptive and behaviour.adapts_threshold
        self._chunked_prefill = parameters.enable_chunked_prefill
        self._by_priority = parameters.policy == "priority"
        reserves = parameters.scheduler_reserve_full_isl
        self._reserves_full_text = behaviour.reserves_full_text if reserves is None else reserves
        self._watermark_blocks = int(parameters.watermark * (self.kv.num_blocks + 1))
        self._is_async = bool(parameters.async_scheduling)
        self._interval = parameters.prefill_schedule_interval
        self._take_version(behaviour)
        self._take_drafts(parameters.speculative, behaviour)
        self._queue_may_turn = context.prompts_use_outputs or (
            self._skips_long_prompts and not self._chunked_prefill) or self._interval > 1
        if self.tier is not None:
            self._refuse_tier(why_no_tier(parameters, self.copies), context.num_stages)
        self._tail_unit = self.kv.hit_tokens if self.kv.is_hybrid and (<GroupTables>self.kv).hits_end_inside else 0
        self.grouping = context.fast_forward and self._mask_slots == 0 and (self._num_drafts == 0 or not (
            context.num_stages > 1 or self.kv.tracks_identity or self.kv.is_hybrid)) and not (
            self.kv.is_hybrid and (context.num_stages > 1 or self._tail_unit > 0))
        self._take_stages(context.num_stages, behaviour)
        self.waiting = WaitingQueue(context.requests, context.demands,
                                    PRIORITY_HERE if self._by_priority else FIRST_COME)
        self._take_extras(parameters, context)
        self.encode_by(new_encoder(parameters, context))
        self._may_hold_running = self._interval > 1 or (self.encoder is not None and self._passes_over_items)
        self._has_extras = (self.kv.is_hybrid or self.encoder is not None or self._adapters is not None
                            or self._grammars is not None or self._interval > 1)
        self._notes_turns = self._notes_turns or self._interval > 1
        self._num_noted = len(context.requests) if self._may_skip() and behaviour.holds_prompts_alone else 0

    def _take_version(self, behaviour):
        self._retaining = self.kv if isinstance(self.kv, RetainingKV) else None
        self._threshold_when_alone = behaviour.cuts_lone_prompts
        self._skips_long_prompts = behaviour.skips_long_prompts
        self._mends_victims = behaviour.mends_victims
        self._goes_on = self._by_priority and behaviour.goes_on_after_own_victim
        self._last_prompts, self.holds_prefills = -self._interval, self._interval > 1
        self._passes_over_items = behaviour.passes_over_items
        self._avoids_extra_step, self._caches_at_end = behaviour.avoids_extra_step, behaviour.caches_at_end
        self._counts_idle_adapters = behaviour.counts_idle_adapters

    def _take_stages(self, num_stages, behaviour):
        if self._is_async and num_stages > 1 and not behaviour.takes_async_stages:
            raise ValueError(f"async_scheduling with pipeline stages: {WHY_NO_ASYNC_STAGES}")
        self.grouping = self.grouping and (self._interval == 1 or num_stages == 1) and not (
            self.tier is not None and self._num_drafts > 0)         # the content of a tier changes between turns
        if self._is_async or num_stages > 1:
            self.overlap(self._is_async, num_stages)

    def __dealloc__(self):
        free(self._passed_over)

    def _refuse_tier(self, why, num_stages):
        if why or num_stages > 1 or (self.kv.is_hybrid and not self.tier.takes_groups) or (
                self._is_async and not self.copies):
            raise ValueError("a KV tier: " + (
                why or "its rules are not settled with pipeline stages, groups of layers, nor with async_scheduling "
                "unless it is notified of each step"))

    cdef bint _may_skip(self) noexcept:
        return (self._stale != NULL or self._skips_long_prompts or self.tier is not None
                or self._adapters is not None or self._grammars is not None
                or (self.encoder is not None and self._passes_over_items))

    cdef int _note_from_now(self) except -1:
        self._passed_over = <uint8_t*>calloc(self._num_noted // 8 + 1, sizeof(uint8_t))
        if self._passed_over == NULL:
            raise MemoryError()
        return 0

    def _take_extras(self, parameters, context):
        adapters, grammars = (len(context.labels.get(name, ())) for name in ("adapter", "grammar"))
        lora, structured_outputs = parameters.lora, parameters.structured_outputs
        if lora is not None and adapters > lora.max_loras:
            self._adapters = Adapters(lora.max_loras, adapters)
        if structured_outputs is not None and grammars > 0:
            self._grammars = new_grammars(structured_outputs, context.labels["grammar"], context.seed)
        self.tracks_adapters = lora is not None and adapters > 0
        self._may_park = self._adapters is not None or self._grammars is not None
        if self._grammars is not None or self.tracks_adapters:
            self.tally = new_tally(parameters, context, self.num_groups)

    def _take_drafts(self, speculative, behaviour):
        cdef bint is_cut
        if speculative is None:
            return
        self._num_drafts, self._lookahead = speculative.num_tokens, speculative.num_lookahead_tokens
        self._lookahead_at_admission = self._lookahead if behaviour.looks_ahead_at_admission else 0
        self._pads_admissions, self._notes_turns = behaviour.pads_admissions, True
        self._skips_drafts, self._mask_slots = behaviour.skips_drafts, mask_slots(speculative)
        self._draft_slots = 1 + self._num_drafts + self._lookahead
        self._draft_blocks = sum(blocks_for(self._draft_slots, size) for size in (
            [group.block_size for group in (<GroupTables>self.kv).layers.groups if group.kind != "linear_attention"]
            if self.kv.is_hybrid else [self.kv.block_size]))
        is_cut = 0 < self._threshold <= self._num_drafts
        self.verify(self._num_drafts, self._lookahead, self._max_model_len, 0 if is_cut else self._token_budget)

    @staticmethod
    def facts(parameters):
        """See Scheduler."""
        parameters = completed(parameters)
        return SchedulerFacts(
            most_running(parameters), parameters.max_num_batched_tokens,
            bool(parameters.async_scheduling), parameters.speculative, takes_threads=True,
            why_no_async_stages="" if behaviour_of(parameters.vllm_version).takes_async_stages else WHY_NO_ASYNC_STAGES,
            blocks_held_back=1,         # the null block
            grouping=parameters.grouping, why_no_tier=why_no_tier(parameters), encodes=parameters.encoder is not None,
            draft_valid_rate=parameters.draft_valid_rate,
            refines_blocks=not behaviour_of(parameters.vllm_version).has_old_kernels)

    @classmethod
    def memory(cls, parameters, deployment, max_model_len):
        """See Scheduler."""
        return vllm_needs(completed(parameters), deployment)

    @staticmethod
    def around(parameters, deployment):
        """See Scheduler."""
        return around(completed(parameters), deployment)

    @staticmethod
    def defaults(engine, machine):
        """See Scheduler."""
        return defaults(engine, machine)

    @staticmethod
    def faults(parameters, engine):
        """See Scheduler."""
        return start_up_faults(completed(parameters), engine)

    @staticmethod
    def item_faults(parameters, items):
        """See Scheduler."""
        return item_faults(completed(parameters), items)

    @staticmethod
    def label_faults(parameters, labels):
        """See Scheduler."""
        return label_faults(parameters, labels)

    @staticmethod
    def layer_faults(parameters, layers, enable_prefix_caching):
        """See Scheduler."""
        return group_faults(parameters, layers, enable_prefix_caching)

    def counts(self):
        """See Scheduler."""
        adapters = {"adapters": self.tally.slots.counts()} if self.tracks_adapters else {}
        return EncodingScheduler.counts(self) | adapters

    def limits(self):
        """See Scheduler."""
        return ((self.longest_prompt, f"are longer than max_model_len = {self._max_model_len:,} allows"),)

    def advice(self, stall_reason):
        """See Scheduler."""
        if stall_reason == "passed over" and self.kv.is_hybrid and self.waiting.size > 0:
            prompt = self._requests[self.waiting.top()].prompt_tokens
            blocks = max((<GroupTables>self.kv).blocks_at_once(begin, min(begin + self._token_budget, prompt))
                         for begin in range(0, prompt, self._token_budget))
            if blocks > self.kv.num_blocks:
                return TOO_MANY_AT_ONCE.format(blocks=blocks, budget=self._token_budget, num_blocks=self.kv.num_blocks)
        return ADVICE.get(stall_reason) or EncodingScheduler.advice(self, stall_reason)

    @staticmethod
    def kv_cache(parameters, plan):
        """See Scheduler."""
        parameters = completed(parameters)
        behaviour = behaviour_of(parameters.vllm_version)
        ahead = hashes_ahead(parameters, plan.enable_prefix_caching, plan.tier is not None, plan.draft_modules)
        if plan.layer_groups is not None:
            if plan.tier is not None:
                plan = replace(plan, with_tables=plan.with_tables or plan.tier.copies,
                               layer_groups=replace(plan.layer_groups, hits_are_whole=True))
            cut = 0 if ahead or not drops_last_hit(parameters) else 1 + behaviour.keeps_before_junctions
            in_flight = parameters.max_num_batched_tokens * (2 if parameters.async_scheduling else 1)
            return HybridKV(plan.num_blocks, unit_of(plan.layer_groups, plan.enable_prefix_caching), plan, in_flight,
                            parameters.scheduler_reserve_full_isl is not False,
                            HitRules(ahead, behaviour.repeats_last_states, cut))
        if not plan.with_identity:
            return CountingKV(plan.num_blocks, plan.block_size)
        with_tables = plan.with_tables
        rules = {"append_unhashed": behaviour.appends_unhashed, "hashes_ahead": ahead,
                 "drops_last_hit": ahead == 0 and drops_last_hit(parameters)}
        if plan.tier is not None:       # under "priority" a block may be lost in the iteration in which it was given
            with_tables = with_tables or plan.tier.names_blocks or parameters.policy != "fcfs"
        if plan.retention is not None:
            return retaining(plan, rules)
        if plan.enable_prefix_caching and not with_tables:
            return SparseKV(plan.num_blocks, plan.block_size, plan.content, **rules)
        return PagedKV(plan.num_blocks, plan.block_size, plan.content, plan.enable_prefix_caching, **rules)

    cdef bint repeats(self) noexcept nogil:
        # Members alone cannot make room for the head of the queue, unless their outputs are part of its prompt. If they
        # take cached blocks of it, it needs more tokens, and is passed over, or gets some without padding. It may also
        # fit into the next batch of several groups, each with its own rest of the budget, or into blocks that members
        # of a hybrid cache give back. With a tier, it needs less room for tokens found there than for tokens computed
        # behind lost blocks, unless the whole text has no room. Adapters are those of the members until one ends. By
        # SGLang's rule the reserve shrinks with each token of a member, free blocks by one block at a time.
        if self.kv.is_hybrid and (self.kv.num_shared > 0 or (
                self._running.size < self.max_running and self.num_waiting() > 0)):
            return False
        if self.tally is not None and (self.tally.unsettled > 0 or self.failed.size > 0):
            return False
        if self.num_groups > 1 and self._running.size < self.max_running:
            return self.num_waiting() == 0
        if self._may_hold_running and self._num_prefilling > 0:
            return False                                # their prompts are held in this batch, and not in each
        if self.num_waiting() == 0:
            return True
        return not (
            self._queue_may_turn or (self._pads_admissions and self._budget <= self._num_drafts)
            or (self.tier is not None and self._running.size < self.max_running and (
                self.tier.reserved_tokens >= 0 or (self.copies and not self._head_is_stuck()))))

    cdef bint _head_is_stuck(self) noexcept nogil:
        """Return whether no request can be admitted until blocks become free, regardless of a tier that copies."""
        cdef int32_t row
        if self._held.size > 0 or self._adapters is not None:
            return False
        row = self.waiting.first(True)
        return row < 0 or self.stale_tokens(row) == 0 and self._is_stuck(
            row, <int64_t>self._requests[row].prompt_tokens + self._requests[row].output_tokens)

    cdef inline bint _is_stuck(self, int32_t row, int64_t text) noexcept nogil:
        """Return whether a whole text has no room even with all its cached blocks; often so under pressure."""
        cdef int64_t lacking
        if not self._reserves_full_text or self._skips_long_prompts:
            return False
        lacking = blocks_for(min(text, self._max_model_len), self.kv.block_size) + self._watermark()
        lacking -= self.kv.free_blocks
        return lacking > 0 and lacking > self.kv.most_hits(row, <int32_t>text) and (
            not self.copies or self.tier.surely_decides(row))

    cdef int64_t longest_surely_taken(self) noexcept nogil:
        if self.tier is not None or self._num_drafts > 0 or self.kv.is_hybrid or self._grammars is not None:
            return -1
        return min(self.longest_prompt, <int64_t>self.kv.num_blocks * self.kv.block_size)

    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        cdef int64_t threshold = self._chunk_limit()
        batch.start_ns = now_ns
        if self._retaining is not None:
            self._retaining.now_ns = now_ns
        batch.num_entries = batch.num_preempted = batch.num_members = batch.num_starved = 0
        clear_shape(&batch.shape)
        self._slots_taken = 0
        self._budget = self._most_tokens()
        self._chunk_continues = False
        self._holds_now = self.holds_prefills and self._must_hold()
        if self._has_extras:
            self._begin_extras()
        if not (self.grouping and self.needs_no_encoder() and self._continue_at_once(batch, threshold)):
            self._continue_one_by_one(batch, threshold)
        if batch.num_preempted == 0 and self.num_waiting() > 0 and self._budget > 0:
            self._admit_waiting(batch, threshold)
        elif batch.num_preempted == 0 and not self._holds_now:
            self._has_no_room = self.num_waiting() > 0 if self._passed_over == NULL else self._leaves_any()
        self.close(batch, self._num_drafts if self._is_async else -1)
        if self._skips_drafts and batch.num_members == 0:       # a member's turn never reaches its last token
            batch.shape.wastes_drafts = self._wastes_drafts(batch)
        if self._has_extras:
            self._end_extras(batch)
        return 0

    cdef bint _leaves_any(self) noexcept nogil:
        """Return whether a request waits that no pass has passed over."""
        cdef int32_t num_passed = 0, row, i
        for i in range(self.waiting.size):
            row = self.waiting.at(i)
            num_passed += self._passed_over[row >> 3] >> (row & 7) & 1
        return self.waiting.size > num_passed

    cdef inline void _note_passed(self, int32_t row, bint is_passed) noexcept nogil:
        cdef uint8_t bit = <uint8_t>(1 << (row & 7)), noted = self._passed_over[row >> 3]
        if (noted & bit != 0) != is_passed:
            self._passed_over[row >> 3] = noted ^ bit

    cdef void _begin_extras(self) noexcept nogil:
        self._admits_prompts = False
        if self.kv.is_hybrid:
            self.kv.begin_batch()
        if self.encoder is not None:
            self.encoder.begin()

    cdef int _end_extras(self, Batch* batch) except -1 nogil:
        if self.kv.is_hybrid:
            self.kv.end_batch()
        if self._interval > 1 and (self._chunk_continues or self._admits_prompts):
            self._last_prompts = self.iteration + 1
        if self._grammars is not None:
            self.opens_ns = self._grammars.next_ns(batch.start_ns) if self.num_waiting() > 0 else NEVER_NS
        if self.encoder is not None:
            batch.shape.encoder_tokens = self.encoder.batch_tokens
            batch.shape.encoder_ns = self.encoder.encoding_ns()
        return 0

    cdef bint _must_hold(self) noexcept nogil:
        """Return whether prompts wait for another step: a sequence decodes, and the last pass left no request waiting.

        Source: vLLM 0.32.0, Scheduler.schedule (throttle_prefills).
        """
        cdef int32_t slot = self._running.head
        if self._has_no_room or (
                self._interval > 1 and self.iteration + 1 - self._last_prompts >= self._interval):
            return False
        if self.num_members > 0:
            return True
        while slot >= 0:
            if not self._sequences[slot].is_partial:
                return True
            slot = self._links.next(slot)
        return False

    cdef bint feeds(self, const Batch* batch) noexcept nogil:
        # All tokens are sent to the first stage, except a first token that also ends its text.
        cdef const Sequence* sequence
        cdef int64_t longest
        cdef int32_t i
        for i in range(batch.num_entries if batch.shape.num_decodes == 0 else 0):
            sequence = &self._sequences[batch.entries[i].slot]
            longest = min(sequence.prompt_tokens + <int64_t>self._demands[sequence.row].max_tokens,
                          self._max_model_len)
            if not batch.entries[i].is_partial and sequence.num_tokens + 1 < longest:
                return True
        return batch.shape.num_decodes > 0

    cdef bint _wastes_drafts(self, const Batch* batch) noexcept nogil:
        """Return whether each sequence is in its prompt, or ends with this batch and those in flight for sure.

        Source: vLLM 0.33.0, vllm/v1/core/sched/scheduler.py, _drafts_unused. A sequence that the batch preempts counts
        there, if it was scheduled before.
        """
        cdef const Sequence* sequence
        cdef int64_t least
        cdef int32_t i
        for i in range(batch.num_entries):
            sequence = &self._sequences[batch.entries[i].slot]
            least = sequence.num_tokens + 1 + (sequence.num_placeholders > 1 + batch.entries[i].drafts)
            if sequence.is_member or not batch.entries[i].is_partial and least < min(
                    sequence.prompt_tokens + <int64_t>self._demands[sequence.row].max_tokens, self._max_model_len):
                return False
        return True

    cdef int64_t _chunk_limit(self) noexcept nogil:
        cdef int64_t count
        if self._threshold == 0:
            return INT64_MAX
        count = self._running.size + self.num_waiting()
        if count <= 1 and not self._threshold_when_alone:
            return INT64_MAX
        return max(self._threshold, self._batched_tokens // count) if self._threshold_adapts else self._threshold

    cdef inline void _spend(self, int64_t tokens, int64_t slots) noexcept nogil:
        """Take the tokens of a request from the budget, and slots of its masks from max_num_batched_tokens.

        The budget is then that of the next request: its slots have room besides.
        """
        self._budget -= tokens
        if slots != 0:
            self._budget -= self._most_tokens()
            self._slots_taken += slots
            self._budget += self._most_tokens()

    cdef inline int64_t _most_tokens(self) noexcept nogil:
        """Return the tokens of an iteration in which masks have taken slots and the next request's masks do."""
        return min(self._token_budget, self._batched_tokens - self._slots_taken - self._mask_slots)

    # ---- phase 1: running requests

    cdef int _continue_one_by_one(self, Batch* batch, int64_t threshold) except -1 nogil:
        """Visit the running list in order, preempting where blocks run out."""
        cdef int32_t slot = self._running.head, passed_over = 0     # sequences that lose their turn, 0.10
        cdef int32_t following
        cdef Sequence* sequence
        cdef int64_t tokens
        if self.multi_token is not None and self.num_members > 0:
            self.dissolve()
        while slot >= 0:
            self._sequences[slot].scheduled = self._sequences[slot].scheduled_drafts = 0
            slot = self._links.next(slot)
        slot = self._running.head
        while slot >= 0 and self._budget > 0:
            sequence = &self._sequences[slot]
            tokens = 0 if passed_over > 0 else min(self._needed_tokens(sequence, threshold), self._budget)
            passed_over -= passed_over > 0
            if self.kv.chunk_alignment > 0 and tokens > 0:
                tokens = self._cut(slot, tokens)
            if tokens > 0 and not sequence.is_member:
                tokens = self.tokens_with_items(sequence.row, sequence.num_computed, tokens)
            if tokens > 0:
                if sequence.is_member:
                    self.kv.settle(slot, self.iteration + sequence.offset)
                if not self._make_room(batch, slot, tokens, &passed_over, &following):
                    slot = following
                    continue
                sequence.scheduled = <int32_t>tokens
                self._spend(tokens, self._mask_slots)
                if self.encoder is not None and not sequence.is_member:
                    self.encoder.encode(sequence.row)
                if self._notes_turns:
                    self._note_turn(sequence)
            slot = self._links.next(slot)
        self._gather(batch)
        return 0

    cdef void leave_multi_token(self, int32_t slot) noexcept nogil:
        EncodingScheduler.leave_multi_token(self, slot)
        if self._is_async or self._caches_at_end:       # `update` has put blocks into the cache when its turns ended
            self.kv.cache(slot, self._sequences[slot].num_tokens - 1)

    cdef void _note_turn(self, Sequence* sequence) noexcept nogil:
        self._chunk_continues = self._chunk_continues or sequence.is_partial
        sequence.scheduled_drafts = 0
        if sequence.num_drafts > 0:
            sequence.scheduled_drafts = <int16_t>max(0, min(<int64_t>sequence.num_drafts, (
                <int64_t>sequence.scheduled + sequence.num_computed - sequence.num_tokens
                - sequence.num_placeholders)))
            sequence.num_drafts = 0

    cdef int64_t _needed_tokens(self, const Sequence* sequence, int64_t threshold) noexcept nogil:
        cdef int64_t computed = sequence.num_computed, tokens
        if sequence.is_member:
            return sequence.group == self.group
        if sequence.num_placeholders > 0 and self._waits_for_tokens(sequence):
            return 0
        if self._holds_now and sequence.is_partial:
            return 0
        tokens = sequence.num_tokens + sequence.num_drafts + sequence.num_placeholders - computed
        return min(min(tokens, threshold), self._max_model_len - computed - self._samples)

    cdef bint _waits_for_tokens(self, const Sequence* sequence) noexcept nogil:
        """Return whether a sequence with tokens in flight has no turn: they surely end it, or it is not its batch."""
        cdef int64_t least = sequence.num_computed + 2 - sequence.num_placeholders
        if self._avoids_extra_step and (
                least >= sequence.prompt_tokens + <int64_t>self._demands[sequence.row].max_tokens):
            return True
        return self.turn_interval > 0 and self._eligible[sequence.row] > self.step

    cdef int _make_room(self, Batch* batch, int32_t slot, int64_t tokens, int32_t* passed_over,
                        int32_t* following) except -1 nogil:
        """Allocate for a running sequence, preempting others; return 0 if it gets no room.

        following : then set to the next sequence to visit, -1: none. By priority 0.33 visits the sequences behind one
            that has preempted itself.
        """
        cdef Sequence* sequence = &self._sequences[slot]
        cdef int64_t computed = self.computed(slot)
        cdef int64_t text = computed + 1 - self.lead if sequence.is_member else sequence.num_tokens
        cdef int64_t slots = self._slots(computed + tokens)
        cdef int32_t victim
        following[0] = -1
        if self.kv.is_hybrid:
            self.kv.slide(slot, self.settled(slot))
        while not (self._tell_slots(slots, computed, tokens) and self.kv.allocate(
                slot, sequence.row, 0, slots, 0, 0, min(computed + tokens, text - self.kv.hashes_ahead))):
            victim = self._victim()
            if self._puts_off_frees and self.is_in_flight(victim):
                return 0                # its blocks would not be free; later ones get no turn either
            if victim != slot and self._by_priority:
                if self._mends_victims:
                    self._spend(-self._sequences[victim].scheduled, (
                        -self._mask_slots if self._sequences[victim].scheduled > 0 else 0))
                    if self.encoder is not None:
                        self.encoder.give_back(self._sequences[victim].row)
                elif self._sequences[victim].order < sequence.order:
                    passed_over[0] += 1
            if victim == slot and self._goes_on:
                following[0] = self._links.next(slot)
            self._evict(batch, victim)
            if victim == slot:
                return 0
        return 1

    cdef int32_t _victim(self) noexcept nogil:
        """Choose the victim: the last admitted, or by priority the first of the worst (priority, arrival here)."""
        cdef int32_t worst = self._running.head, slot, row, worst_row
        if not self._by_priority:
            return self._running.tail
        slot = self._links.next(worst)
        while slot >= 0:
            row = self._sequences[slot].row
            worst_row = self._sequences[worst].row
            if (self._demands[row].priority > self._demands[worst_row].priority
                    or (self._demands[row].priority == self._demands[worst_row].priority
                        and self._requests[row].enqueued_ns > self._requests[worst_row].enqueued_ns)):
                worst = slot
            slot = self._links.next(slot)
        return worst

    cdef int _evict(self, Batch* batch, int32_t slot) except -1 nogil:
        cdef int32_t row = self._sequences[slot].row
        self.preempt(slot, batch)
        return self.waiting.push_front(row)

    # ---- phase 2: waiting requests

    cdef int _admit_waiting(self, Batch* batch, int64_t threshold) except -1 nogil:
        cdef bint any_running = batch.num_members + batch.num_entries > 0, any_left
        cdef int32_t row, outcome
        if self._may_park:
            self._let_park()
        if self._grammars is not None:
            self.waiting.wake(batch.start_ns)
        if self._adapters is not None:
            self._note_adapters(batch)
            self._adapters.tell(self.waiting)
        if self._held.size > 0 and self._admit_held(batch, threshold, any_running) == STOP:
            return 0
        while self._budget > 0 and self._running.size < self.max_running:
            row = self.waiting.first(self._adapters is None or self._adapters.has_free_slots())
            if row < 0:
                break
            outcome = SKIP if self.stale_tokens(row) > 0 else (
                self._look_for_cause(row, batch.start_ns) if self._has_extras else ELIGIBLE)
            if outcome == ELIGIBLE:
                outcome = self._try_admission(batch, row, threshold, any_running)
            if outcome == STOP:
                break
            if outcome == ADMITTED:
                self.waiting.take(row)
            elif outcome == SKIP:
                self.waiting.set_aside(row)
            if self._passed_over != NULL:
                self._note_passed(row, outcome == SKIP)
        any_left = self.waiting.size > 0
        self.waiting.put_back()
        if not self._holds_now:
            self._has_no_room = any_left if self._passed_over == NULL else self._leaves_any()
        return 0

    cdef void forget(self) noexcept nogil:
        EncodingScheduler.forget(self)
        if self.encoder is not None:
            self.encoder.forget()
        if self._grammars is not None:
            self._grammars.forget()

    cdef bint holds_adapter(self, int32_t adapter, int64_t now_ns) noexcept nogil:
        return self.tracks_adapters and self.tally.slots.has(adapter)

    cdef int enqueue(self, int32_t row) except -1 nogil:
        if self._num_noted > 0 and self._passed_over == NULL and (self._interval > 1 or self.prefill_interval > 1):
            with gil:
                self._note_from_now()
        if self._grammars is not None:
            if self._requests[row].scheduled_ns < 0:
                self._grammars.ask(self._demands[row].grammar, self._requests[row].enqueued_ns)
            if self._passed_over != NULL:
                self._note_passed(row, self._demands[row].grammar >= 0)
        return EncodingScheduler.enqueue(self, row)

    cdef int _let_park(self) except -1 nogil:
        """Let waiting rows be parked, unless each pass notes the rows that it passes over."""
        self._may_park = False
        if self._interval == 1 and self.prefill_interval <= 1:
            self.waiting.let_park(self._adapters.size if self._adapters is not None else 0, self._grammars is not None)
        return 0

    cdef int _look_for_cause(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Return ELIGIBLE, or that a request is passed over or parked for its grammar or its adapter."""
        cdef int32_t grammar = self._demands[row].grammar
        if self._grammars is not None and grammar >= 0:
            self._grammars.ask(grammar, now_ns)         # of a request that ran elsewhere, which `enqueue` leaves out
            if self._grammars.is_awaited(grammar, now_ns):
                return PARKED if self.waiting.park_until(row, self._grammars.ready_ns(grammar)) else SKIP
            if self._grammars.fails(grammar):
                return self._fail(row)
        if not self._has_adapter(row):
            return PARKED if self.waiting.park_under_adapter(row) else SKIP
        return ELIGIBLE

    cdef int _fail(self, int32_t row) except -1 nogil:
        """Note that the grammar of a request has failed: it leaves when the next iteration ends."""
        if self.waiting.park_until(row, NEVER_NS):
            add_row(&self.failed, row)
            return PARKED
        if not has_row(&self.failed, row):
            add_row(&self.failed, row)
        return SKIP

    cdef inline bint _has_adapter(self, int32_t row) noexcept nogil:
        return self._adapters is None or self._adapters.has_room_for(self._demands[row].adapter)

    cdef void _note_adapters(self, const Batch* batch) noexcept nogil:
        """Record the adapters of running sequences in this batch; a sequence certain to end has no tokens in it."""
        cdef int32_t slot = self._running.head, i
        self._adapters.begin()
        if self.grouping and (self._counts_idle_adapters or batch.num_starved == 0):
            for i in range(self.tally.num_present):
                if self._counts_idle_adapters or self.tally.has_members(self.group, self.tally.present[i]):
                    self._adapters.use(self.tally.present[i])
            for i in range(self._num_prefilling):
                self._note_adapter(batch, self._prefilling[i])
            return
        while slot >= 0:
            self._note_adapter(batch, slot)
            slot = self._links.next(slot)

    cdef inline void _note_adapter(self, const Batch* batch, int32_t slot) noexcept nogil:
        cdef const Sequence* sequence = &self._sequences[slot]
        if self._counts_idle_adapters or (
                (sequence.group == self.group and not (batch.num_starved > 0 and sequence.is_starved))
                if sequence.is_member else sequence.scheduled > 0
                or (self.encoder is not None and self.encoder.lacks(        # held up, and will go on
                    sequence.row, sequence.num_computed))):
            self._adapters.use(self._demands[sequence.row].adapter)

    cdef int _admit_held(self, Batch* batch, int64_t threshold, bint any_running) except -1 nogil:
        """Admit requests after their KV has arrived from the tier, in the order of their loads."""
        cdef int32_t slot = self._held.head, following
        cdef Sequence* sequence
        cdef Turn turn
        while slot >= 0 and self._budget > 0 and self._running.size < self.max_running:
            sequence = &self._sequences[slot]
            following = self._links.next(slot)
            if sequence.hold == LOADED:
                self.settle_held(slot)
                if not self._has_adapter(sequence.row):
                    slot = following
                    continue
                turn = self._turn(sequence.row, slot, sequence.num_computed, threshold, any_running)
                turn.tokens = self.tokens_with_items(sequence.row, sequence.num_computed, turn.tokens)
                if turn.tokens == 0 and self._passes_over_items:
                    slot = following
                    continue
                if turn.tokens == 0 or not self._allocate(
                        slot, sequence.row, 0, sequence.num_tokens, sequence.num_computed, turn.tokens):
                    self.let_items_go(sequence.row)
                    return STOP
                self.run_held(slot, batch)
                self._admits_prompts |= sequence.num_computed < sequence.num_tokens - 1
                if turn.drafts > 0 and turn.tokens <= turn.drafts:
                    self._refuse_cut_padding()
                self._begin(batch, slot, turn)
            slot = following
        return ADMITTED

    cdef int _try_admission(self, Batch* batch, int32_t row, int64_t threshold, bint any_running) except -1 nogil:
        cdef Request* request = &self._requests[row]
        cdef int64_t text = request.prompt_tokens + request.output_tokens, computed
        cdef int32_t hits, slot, outcome
        cdef Turn turn
        cdef External external
        if self._is_stuck(row, text) and (self.encoder is None or not self.encoder.has_items(row)):
            return STOP
        hits = self.kv.lookup(row, <int32_t>text)
        computed = <int64_t>hits * self.kv.hit_tokens
        external.tokens, external.comes_later, external.has_first_token = 0, False, False
        if self.tier is not None:
            outcome = self._ask_tier(row, hits, &external, batch.start_ns)
            if outcome != ELIGIBLE:
                return outcome
            computed += external.tokens
        if self._holds_now and computed < text - 1:
            return STOP
        turn = self._turn(row, -1, computed, threshold, any_running)
        if turn.tokens == 0:
            return SKIP if self._skips_long_prompts else STOP
        turn.tokens = self.tokens_with_items(row, computed, turn.tokens)
        slot = self.top_slot()
        if external.tokens > 0 and turn.tokens > 0 and self.kv.is_hybrid:
            self.kv.slide(slot, computed)
        if turn.tokens == 0 or not self._allocate(slot, row, hits, text, computed, turn.tokens):
            if turn.tokens == 0 and self._passes_over_items:
                return SKIP                             # it keeps its references to items
            self.let_items_go(row)
            return STOP
        self.admit(row, hits, batch)
        if self._interval > 1:
            self._admits_prompts |= computed < text - 1
        if external.tokens > 0:
            self.load_now(slot, external, batch.start_ns)
        if turn.drafts > 0 and turn.tokens <= turn.drafts:
            self._refuse_cut_padding()
        self._begin(batch, slot, turn)
        return ADMITTED

    cdef int _ask_tier(self, int32_t row, int32_t hits, External* external, int64_t now_ns) except -1 nogil:
        """Return the fate of the head as far as the tier decides it, with its tokens in the tier."""
        self.tier.match(row, <int64_t>hits * self.kv.hit_tokens, external)
        if external.tokens == UNDECIDED:
            return SKIP
        if external.tokens > 0 and external.comes_later:
            return self._try_hold(row, hits, external[0], now_ns)
        return ELIGIBLE

    cdef Turn _turn(self, int32_t row, int32_t slot, int64_t computed, int64_t threshold,
                    bint any_running) noexcept nogil:
        """Return the tokens that an admitted request computes; no tokens: it does not fit the budget.

        slot : the slot that holds its blocks; -1: none, it was just looked up.
        """
        cdef int64_t text = self._requests[row].prompt_tokens + self._requests[row].output_tokens
        cdef Turn turn
        turn.drafts = 0
        turn.tokens = text - computed
        if (self._pads_admissions and turn.tokens == 1 and not self._chunk_continues
                and (any_running or computed > 0) and computed + self._num_drafts + 2 <= self._max_model_len):
            turn.drafts = self._num_drafts
            turn.tokens = 1 + self._num_drafts if 1 + self._num_drafts <= self._budget else 0
        turn.tokens = min(turn.tokens, threshold)
        if not self._chunked_prefill and turn.tokens > self._budget:
            turn.tokens = 0
        turn.tokens = min(turn.tokens, self._budget)
        if self.kv.chunk_alignment > 0:
            turn.tokens = self._aligned(row, slot, text, computed, turn.tokens)
        return turn

    cdef int64_t _cut(self, int32_t slot, int64_t tokens) noexcept nogil:
        cdef const Sequence* sequence = &self._sequences[slot]
        if sequence.is_member:
            return tokens
        return self._aligned(sequence.row, slot, sequence.num_tokens, sequence.num_computed, tokens)

    cdef int64_t _aligned(self, int32_t row, int32_t slot, int64_t text, int64_t computed,
                          int64_t tokens) noexcept nogil:
        """Return the part of `tokens` to compute where states of layers are kept at the ends of blocks."""
        cdef AlignedText it
        it.prompt, it.text = self._requests[row].prompt_tokens, text
        it.junction, it.alignment = self.kv.junction(slot), self.kv.chunk_alignment
        it.checkpoint, it.grid = (<GroupTables>self.kv).checkpoint, (<GroupTables>self.kv).grid
        it.tail = (it.prompt - 1) // self._tail_unit * self._tail_unit if self._tail_unit > 0 else 0
        it.dropped = (<GroupTables>self.kv).dropped_tokens
        it.largest = min(self._token_budget, self._threshold) if self._threshold > 0 else self._token_budget
        return aligned_chunk(&it, computed, tokens)

    cdef int _allocate(self, int32_t slot, int32_t row, int32_t hits, int64_t text, int64_t computed,
                       int64_t tokens) except -1 nogil:
        """Allocate for an admitted request; return 0 if there is no room."""
        cdef int64_t slots = min(computed + tokens + self._lookahead_at_admission, self._max_model_len)
        cdef int64_t full_text = min(text, self._max_model_len) if self._reserves_full_text else 0
        self._tell_slots(slots, computed, tokens)
        return self.kv.allocate(slot, row, hits, slots, full_text, self._watermark(),
                                min(computed + tokens, text - self.kv.hashes_ahead))

    cdef inline bint _tell_slots(self, int64_t slots, int64_t computed, int64_t tokens) noexcept nogil:
        """Note the slots of the next `allocate` for layers with states; return True. See GroupTables."""
        if self.kv.is_hybrid:
            (<GroupTables>self.kv).ahead_slots = slots - computed - tokens
            (<GroupTables>self.kv).computed_tokens = computed
        return True

    cdef inline int32_t _watermark(self) noexcept nogil:
        """Return the blocks that an admission must leave free."""
        return self._watermark_blocks if self._running.size > 0 else 0

    cdef void _begin(self, Batch* batch, int32_t slot, Turn turn) noexcept nogil:
        self._sequences[slot].scheduled = <int32_t>turn.tokens
        self._sequences[slot].scheduled_drafts = turn.drafts
        if self.encoder is not None:
            self.encoder.encode(self._sequences[slot].row)
        self.add_entry(batch, slot)
        self._spend(turn.tokens, self._mask_slots)
        if self._adapters is not None and self._adapters.use(self._demands[self._sequences[slot].row].adapter):
            self.waiting.set_slot(self._demands[self._sequences[slot].row].adapter, True)

    cdef int _refuse_cut_padding(self) except -1 with gil:
        # vLLM 0.32.0, vllm/v1/core/sched/scheduler.py: an assertion in schedule()
        raise InputErrors([KeyFault(
            f"engine.long_prefill_token_threshold: expected 0, or more than engine.speculative.num_tokens = "
            f"{self._num_drafts}, found {self._threshold}: vLLM ends with an error here, where it admits a request of "
            f"one token, padded with drafts")])

    cdef int _try_hold(self, int32_t row, int32_t hits, External found, int64_t now_ns) except -1 nogil:
        """Reserve blocks for a request that will wait for KV from the tier.

        They must leave room for the rest of all texts that are being computed or loaded.
        """
        cdef Request* request = &self._requests[row]
        cdef int64_t text = request.prompt_tokens + request.output_tokens
        cdef int64_t tokens = min(
            <int64_t>hits * self.kv.hit_tokens + found.tokens + found.has_first_token, self._max_model_len)
        cdef int64_t full_text = min(text, self._max_model_len) if self._reserves_full_text else 0
        cdef int32_t slot = self.top_slot()
        if self.kv.is_hybrid:
            self.kv.slide(slot, tokens)
        if (not self._has_room(row, slot, hits, tokens, self._watermark())
                or not self.kv.allocate(slot, row, hits, tokens, full_text, self._watermark(), 0)):
            if self.kv.is_hybrid:
                self.kv.slide(slot, 0)
            return STOP
        self.hold(row, hits, found, now_ns)
        self._sequences[slot].is_partial = True
        return ADMITTED

    cdef int update(self, const Entry* entry, int32_t sampled, int32_t rejected, bint goes_on) except -1 nogil:
        cdef Sequence* sequence = &self._sequences[entry.slot]
        cdef int32_t cut = 0
        if self.encoder is not None:
            self.pass_items(sequence, sequence.num_placeholders if self._is_async else rejected,
                            sampled > 0 and not goes_on)
        if sampled == 0:
            return 0
        sequence.num_tokens += sampled
        sequence.num_computed -= rejected
        if self._caches_at_end:
            cut = entry.drafts - rejected + 1 - sampled             # accepted drafts behind the last token
            sequence.num_computed -= cut
        if self._is_async:
            sequence.num_placeholders -= rejected + sampled + cut
            return self.kv.cache(entry.slot, sequence.num_computed - sequence.num_placeholders
                                 if self.kv.hashes_ahead == 0 else min(
                                     sequence.num_computed - sequence.num_placeholders,
                                     sequence.num_tokens - self.kv.hashes_ahead))
        if self._caches_at_end and self._num_drafts > 0:
            self.kv.cache(entry.slot, min(<int64_t>sequence.num_computed,
                                          <int64_t>sequence.num_tokens - self.kv.hashes_ahead))
        if goes_on:
            sequence.num_drafts = self._num_drafts
            if self.grammar_drafts is not None:
                sequence.num_drafts = <int16_t>self.grammar_drafts.admit(
                    sequence.row, sequence.num_tokens, self._num_drafts)
        return 0
