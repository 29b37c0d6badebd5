"""`sglang`: continuous batching as in SGLang.

Prompts come first: while any may be admitted, a batch has only prompts, and decodes wait (or, with enable_mixed_chunk,
are added to it). Computed prompt tokens can be reused as soon as their batch has ended, from a tree of prefixes
(kv/radix.pxd); generated tokens, once their request is complete. Requests are admitted by an estimate of the tokens
that running ones still need: a part of their longest answers, which shrinks as decodes succeed; if it was too small,
requests are retracted and recompute their texts. Source: sglang 0.5.23, managers/scheduler.py, schedule_policy.py,
schedule_batch.py and scheduler_components/.

With host memory ([kv_tiers] protocol = "hicache") a part of a prompt may be found there, behind the part that the tree
has on the accelerator: its tokens need pages, are loaded when the prompt is admitted, and are recomputed if they are
fewer than ten or find no room (kv/radix_host.pyx, kv/tiers/hicache.pyx).

KV is in pages, by default of one token; their number follows SGLang's rule: memory x mem_fraction_static less weights;
the rest is for activations (engine_memory.py).

Unless `disable_overlap_schedule`, a batch is chosen while the one before it executes: the tokens sampled there are
known one batch later, and so is a request's end token.

With drafts ([engine.speculative]) each decode verifies `num_draft_tokens` tokens of a request, of which the acceptance
says how many count; a decode beside prompts has a token of each request and no drafts. A decode reserves twice the
tokens that it may write behind the text in KV, since another decode may be in flight, in whole pages, and keeps them:
requests short of pages are retracted. For drafters of the model a token is found in the tree if the next token
agrees, too. Admission, order and priorities are those without drafts (sources: sglang_drafts.py).

With LoRA ([engine.lora]) a prompt is passed over while its adapter has no place beside those of running requests
(can_schedule_lora_req). With structured outputs requests wait for their grammars in a queue of their own, to which each
pass that may admit prompts looks first (sglang_grammars.pyx).

With `upstream_compat` unintended behaviour of SGLang is followed. Without it:

- hrrn adds no tokens to the processed ones for a decode; upstream adds those of the prompts that the running batch grew
  from.
- Without a tree, a request that ignores its end token and would run alone is admitted if its text has room. Upstream
  never admits one if the pool cut its answer short, or one put back that needs another page: all behind it wait.
- A prompt joins others in a batch if max_prefill_tokens has room for it, or for the part it is cut to; upstream a
  prompt that may be cut joins while any tokens are left.
- One prompt per batch is cut. Upstream, if a second one is cut, only that one goes on; the first decodes behind the
  computed part of its prompt.
- If decodes lack pages and an unfinished prompt holds some, the prompt is put back first. Upstream it keeps them, which
  may last long with prefill_decode_interval, and decoding requests are put back, the last one refused.
- A decode replica that runs no request checks for arrived KV even if retracted requests wait; see sglang_apart.

Kept, as intended or harmless: a chunk goes on even if running requests may need more than is left; the state "batch is
full" is reset when the running batch is replaced by prompts, and after a mixed batch; after a retraction requests are
expected to need many tokens, for up to 600 decodes.

A prompt that is too long is replaced by one token: it waits in the queue, is computed, and then its request is rejected
(managers/utils.py, validate_input_length; schedule_batch.py, set_finish_with_abort). In pools with roles and with
hicache it is rejected at once.

Unlike SGLang: a chunk without free pages waits, where the server would crash; requests leave nothing in the
tree if their clients give up; a request with a grammar that does not compile leaves without a batch, where the server
computes one token in place of its prompt.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.memory cimport resize
from simulator.core.row_list cimport RowList, add_row, has_row
from simulator.domain.batch cimport clear_shape
from simulator.domain.iteration cimport Batch
from simulator.domain.request cimport DROPPED, PENDING, REJECTED, WAITING
from simulator.kv.tiers.hicache cimport HicacheTier
from simulator.scheduling.adapters cimport Adapters
from simulator.scheduling.base cimport Scheduler, Sequence
from simulator.scheduling.sglang_disaggregated cimport DECODE, PREFILL, WHOLE, SglangDisaggregated
from simulator.scheduling.sglang_grammars cimport GrammarQueue
from simulator.scheduling.sglang_inbox cimport SglangInbox
from simulator.scheduling.sglang_owed cimport MOST_RESERVED, Owed
from simulator.scheduling.sglang_queue cimport HRRN, ROUTING_KEY, SHORTEST_PREFILL, Candidate, SglangQueue
from simulator.scheduling.sglang_running cimport slack_of
from simulator.scheduling.waiting_queue cimport FIRST_COME, WaitingQueue

import numpy as np

from simulator.kv.radix import RadixKV as RadixCache
from simulator.scheduling.base import SchedulerFacts
from simulator.scheduling.engine_memory import sglang_needs
from simulator.scheduling.sglang_arguments import (
    ADVICE, SglangParameters, faults, ignores_eos, label_faults)
from simulator.scheduling.sglang_defaults import completed, defaults
from simulator.scheduling.sglang_drafts import completed_drafts
from simulator.scheduling.sglang_extras import new_adapters, new_grammars, new_tally
from simulator.scheduling.sglang_overheads import around

cdef enum:
    NOT_SCHEDULED = -1          # records.NEVER_NS
    SPARE_TOKENS = 6            # by which the longest text exceeds the longest prompt
    DECAY_STEPS = 600           # decodes until the ratio is least; SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS

NO_IMAGES = '"sglang" knows no images: its tree of prefixes tells prompts apart by their tokens alone'

cdef double FIRST_RATIO = 0.7   # SGLANG_INIT_NEW_TOKEN_RATIO
cdef double LEAST_PART = 0.14   # least share of FIRST_RATIO; SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR


cdef enum Verdict:              # may another prompt be admitted?
    GO_ON
    NO_TOKEN                    # there is no room
    OTHER                       # the batch is full


cdef struct Budget:             # of the batch being formed
    double total                # tokens that it and running requests are expected to need; see `_spare`
    double slack                # error bound of total; 0: equal to SGLang's, roundings included
    int64_t current             # tokens that the batch needs now
    int64_t inputs              # left of max_prefill_tokens
    int64_t chunk               # left of chunked_prefill_size
    int32_t chunk_slot          # slot of a prompt that goes on after this batch; -1: none
    bint goes_on                # the batch goes on with a prompt cut earlier
    bint has_needs              # `_needs` was filled in this pass


cdef struct Need:               # of a request that ignores the end token, without a tree
    double left                 # tokens still to generate
    int64_t occupied            # tokens in KV then


@cython.final
cdef class Sglang(SglangDisaggregated):
    """Prompts first, admitted by estimates; see `SglangParameters`."""

    Parameters = SglangParameters

    cdef RowList _admitted              # slots of the batch being formed that compute prompts
    cdef RowList _victims               # rows put back for others in this pass
    cdef Need* _needs                   # [_num_needs] by tokens left
    cdef int32_t _num_needs
    cdef int32_t _needs_room
    cdef bint _drops_chunk              # the batch before had prompts, one still unfinished
    cdef bint _is_chunking
    cdef bint _is_mixing
    cdef bint _may_preempt
    cdef int64_t _threshold             # priority_scheduling_preemption_threshold
    cdef int64_t _chunk_tokens          # chunked_prefill_size
    cdef int64_t _input_tokens          # max_prefill_tokens
    cdef int64_t _most_prompts          # prefill_max_requests
    cdef int64_t _most_queued           # max_queued_requests
    cdef int64_t _interval              # prefill_decode_interval
    cdef int64_t _interval_least        # prefill_decode_interval_min_bs
    cdef int64_t _deferrals             # passes without prompts still to be made
    cdef Budget _left                   # of the batch being formed
    cdef int64_t _known_orders          # running requests with a later order came from other replicas
    cdef SglangInbox _inbox             # requests that no pass has read yet
    cdef bint _had_prompts              # the last pass chose a batch with prompts
    cdef bint _had_decodes              # the running batch had requests when the last pass ended
    cdef int64_t _extended              # tokens of the last batch with prompts
    cdef bint _cuts_prompts             # a prompt that is too long is replaced by one token
    cdef GrammarQueue _grammars         # requests that wait for grammars; None: no request has one
    cdef Adapters _adapters             # of running and admitted requests; None: a batch has room for all
    cdef HicacheTier _hicache           # host memory; None: there is none
    cdef bint _prefetches               # a store below host memory is prefetched from
    cdef bint _is_forming               # a pass is under way
    cdef RowList _waiting_on            # rows passed over in this pass: being prefetched, or about to leave
    cdef int64_t _carried               # prompt tokens that the running batch grew from; hrrn adds them per decode

    def __init__(self, parameters, context):
        parameters = completed(parameters)
        ignoring = ignores_eos(parameters, context.labels)
        drafts = completed_drafts(parameters.speculative)
        self.grouping = context.fast_forward and drafts is None
        self._pages = context.kv
        self.max_running = parameters.max_running_requests
        self._take_parameters(parameters)
        self.waiting = WaitingQueue(context.requests, context.demands, FIRST_COME)
        self._inbox = SglangInbox(parameters.scheduler_recv_interval, self.waiting)
        self._queue, self._owing = SglangQueue(parameters, context, self.waiting), Owed()
        self._queue.follow(&self.failed)
        self.longest_prompt = max(self._queue.longest - SPARE_TOKENS, 1)
        self._chunked = -1
        self._take_role()
        if self.tier is not None and self.tier.copies:
            self._hicache = self.tier
            self._prefetches = self._hicache.has_store
        self._cuts_prompts = self._role == WHOLE and self._hicache is None
        if self._cuts_prompts:
            self._queue.cut_prompts(self.longest_prompt)
        self._num_classes = len(ignoring) - 1
        self._ignores = <bint*>calloc(len(ignoring), sizeof(bint))
        if self._ignores == NULL:
            raise MemoryError()
        for i, ignores in enumerate(ignoring):
            self._ignores[i] = ignores
        if drafts is not None:
            self._verified = self.turn_tokens = drafts.num_draft_tokens
            self._reserved = 2 * drafts.decode_tokens(self.kv.block_size)
        if self._overlaps_batches:
            self.overlap(1, 1)
        self._grammars = new_grammars(parameters, context, self.waiting)
        self._adapters = new_adapters(parameters, context)
        self.tally = new_tally(parameters, context, self.num_groups)
        self.tracks_adapters = self.tally is not None and self.tally.slots is not None

    def _take_parameters(self, parameters):
        cdef double conservativeness = parameters.schedule_conservativeness
        self._first_ratio = min(FIRST_RATIO * conservativeness, 1.0)
        self._least_ratio = min(self._first_ratio * LEAST_PART, 1.0)
        self._decay = (self._first_ratio - self._least_ratio) / DECAY_STEPS
        self._ratio = self._first_ratio
        self._is_upstream = parameters.upstream_compat
        self._overlaps_batches = not parameters.disable_overlap_schedule
        self._is_chunking = parameters.chunked_prefill_size > 0
        self._is_mixing = self._is_chunking and parameters.enable_mixed_chunk
        self._by_priority = parameters.enable_priority_scheduling
        self._may_preempt = self._by_priority and not parameters.disable_priority_preemption
        self._retracts_by_priority = parameters.retraction_policy == "priority"
        self._threshold = parameters.priority_scheduling_preemption_threshold
        self._chunk_tokens, self._input_tokens = parameters.chunked_prefill_size, parameters.max_prefill_tokens
        self._most_prompts = parameters.prefill_max_requests or 1 << 60
        self._most_queued = parameters.max_queued_requests or 1 << 60
        self._interval = parameters.prefill_decode_interval
        self._interval_least = parameters.prefill_decode_interval_min_bs

    def __dealloc__(self):
        free(self._admitted.rows)
        free(self._victims.rows)
        free(self._needs)
        free(self._waiting_on.rows)

    # ---- class-level answers

    @staticmethod
    def around(parameters, deployment):
        """See Scheduler."""
        return around(parameters, deployment)

    @staticmethod
    def facts(parameters):
        """See Scheduler."""
        parameters = completed(parameters)
        most = parameters.max_prefill_tokens
        if parameters.chunked_prefill_size > 0:
            most = min(most, parameters.chunked_prefill_size)
        return SchedulerFacts(
            parameters.max_running_requests, most, not parameters.disable_overlap_schedule,
            completed_drafts(parameters.speculative), takes_stages=False, takes_threads=True, why_no_tier="",
            notices_when_forming=True, does_whole=False)

    @staticmethod
    def defaults(engine, machine):
        """See Scheduler."""
        return defaults(engine, machine)

    @staticmethod
    def faults(parameters, engine):
        """See Scheduler."""
        return faults(completed(parameters), engine)

    @classmethod
    def memory(cls, parameters, deployment, max_model_len):
        """See Scheduler."""
        return sglang_needs(completed(parameters), deployment)

    @staticmethod
    def label_faults(parameters, labels):
        """See Scheduler."""
        return label_faults(parameters, labels)

    @staticmethod
    def item_faults(parameters, items):
        """See Scheduler."""
        return () if items is None else [("scheduler", NO_IMAGES)]

    @staticmethod
    def longest_answers(parameters, pool, prompt_tokens):
        """See Scheduler."""
        tokens = pool.num_gpu_blocks * pool.block_size
        longest = min(pool.max_model_len, tokens) - 1
        pages = -(-prompt_tokens // pool.block_size) * pool.block_size
        by_text, by_pool = longest - prompt_tokens - 1, tokens - pages - pool.block_size - 1
        is_taken = prompt_tokens <= max(longest - SPARE_TOKENS, 1)
        most = np.where(is_taken, np.maximum(np.minimum(by_text, by_pool), 0), -1)
        return most, (by_pool < by_text) | (tokens < pool.max_model_len)

    @staticmethod
    def kv_cache(parameters, plan):
        """See Scheduler."""
        return RadixCache(plan.num_blocks, plan.block_size, plan.content, plan.enable_prefix_caching,
                          parameters.radix_eviction_policy,
                          plan.tier.host if isinstance(plan.tier, HicacheTier) else None,
                          parameters.speculative is not None and parameters.speculative.reads_next)

    def counts(self):
        """See Scheduler."""
        return Scheduler.counts(self) | ({"adapters": self.tally.slots.counts()} if self.tracks_adapters else {})

    def advice(self, stall_reason):
        """See Scheduler."""
        key = (stall_reason, "decode") if self._role == DECODE else stall_reason
        return ADVICE.get(key) or Scheduler.advice(self, stall_reason)

    # ---- requests arrive and leave

    def limits(self):
        """See Scheduler."""
        return ((self.longest_prompt, f"are longer than the {self.longest_prompt:,} tokens that max_model_len and the "
                 "KV pool leave a prompt"), (-1, f"found max_queued_requests = {self._most_queued:,} waiting"))

    cdef int8_t refusal(self, int32_t row) noexcept nogil:
        cdef int64_t text = self._queue.text(row)
        if self._queue.prompt(row) > self.longest_prompt or text > self._queue.longest:
            return REJECTED
        if self.kv.whole_blocks(text) > self.kv.num_blocks:
            return DROPPED
        if self._by_priority or self._inbox.is_on or (
                self._grammars is not None and self._grammars.is_awaited(self._demands[row].grammar)):
            return PENDING
        return REJECTED if self._is_queue_full() else PENDING

    cdef inline bint _is_queue_full(self) noexcept nogil:
        cdef int64_t size = self._queue.size()
        cdef int32_t i
        if size < self._most_queued:
            return False
        for i in range(self._grammars.rows.size if self._grammars is not None and not self._grammars.is_hidden else 0):
            size -= self._requests[self._grammars.rows.rows[i]].status == WAITING
        return size >= self._most_queued

    cdef void forget(self) noexcept nogil:
        SglangDisaggregated.forget(self)
        if self._grammars is not None:
            self._grammars.forget()

    cdef bint holds_adapter(self, int32_t adapter, int64_t now_ns) noexcept nogil:
        return self.tracks_adapters and self.tally.slots.has(adapter)

    cdef inline int32_t _adapter_of(self, int32_t row) noexcept nogil:
        """Return the adapter of a request; those without one have the last."""
        return self._demands[row].adapter if self._demands[row].adapter >= 0 else self._adapters.size - 1

    cdef int enqueue(self, int32_t row) except -1 nogil:
        if self._inbox.is_on and not self._is_forming:
            self._inbox.add(row)
            return Scheduler.enqueue(self, row)
        return self._take_in(row)

    cdef int _take_in(self, int32_t row) except -1 nogil:
        """Let a request that was read wait for a place, or for its grammar first."""
        if self._grammars is None or not self._grammars.is_awaited(self._demands[row].grammar):
            return self._let_in(row)
        self._grammars.add(row)
        if not self._grammars.is_hidden:
            return Scheduler.enqueue(self, row)
        self._requests[row].status = WAITING            # the pass puts it into `waiting` when it ends
        return 0

    cdef int _let_in(self, int32_t row) except -1 nogil:
        cdef int32_t worst = row
        cdef bint is_full = self._is_queue_full()
        Scheduler.enqueue(self, row)
        if self._grammars is not None and self._grammars.fails(self._demands[row].grammar):
            return add_row(&self.failed, row)
        self._queue.enter(row)
        if is_full:
            if self._by_priority:
                worst = self._least()
            add_row(&self.failed, worst)
        if self._prefetches and self._is_forming:
            self._ask(row)
        elif self._prefetches:
            add_row(&self._hicache.entered, row)
        return 0

    cdef int32_t _least(self) except -1 nogil:
        """Return the least preferred waiting request that needs no grammar, or has it."""
        cdef int32_t worst
        if self._grammars is None or self._grammars.is_hidden:
            return self._queue.least()
        self._grammars.hide()
        worst = self._queue.least()
        self._grammars.show()
        return worst

    # ---- host memory

    cdef int _ask(self, int32_t row) except -1 nogil:
        """Prefetch the part of a queued text that the store has."""
        cdef Candidate* it = self._queue.candidate(row)
        if self._queue.is_leaving(row):
            return 0
        it.text = <int32_t>self._queue.text(row)
        self._queue.adopt(row, it.text - 1)
        return self._hicache.ask(row, it.host_node, <int64_t>it.prefix + it.host, it.text - 1)

    cdef int _read(self) except -1 nogil:
        """Read the requests that have arrived since the last time."""
        cdef int32_t i
        for i in range(self._inbox.unread.size):
            self._take_in(self._inbox.unread.rows[i])
        self._inbox.unread.size = self._inbox.count = 0
        return 0

    cdef int _begin_pass(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        for i in range(self._hicache.entered.size):
            self._ask(self._hicache.entered.rows[i])
        self._hicache.entered.size = 0
        return self._hicache.take_notice(now_ns)

    cdef inline Verdict _verdict(self) noexcept nogil:
        if self._spare(0) <= 0 or <double>self._pages.available() - <double>self._left.current <= 0:
            return NO_TOKEN
        return OTHER if self._left.inputs <= 0 or (self._is_chunking and self._left.chunk <= 0) else GO_ON

    cdef inline int64_t _slots_left(self, int64_t held) noexcept nogil:
        """Return the most prompts in a batch, `held` of which had places before."""
        cdef int64_t rows = self.max_running - (self._running.size + self._parked.size - self._num_new())
        return min(<int64_t>self.max_running - self._decoding.size, max(rows + held, 0))

    cdef inline int64_t _num_new(self) noexcept nogil:
        return self._admitted.size - self._left.goes_on

    cdef bint repeats(self) noexcept nogil:
        # No request is admitted while the batch is full, and it is until a request leaves. With hrrn, an arrival needs
        # the tokens processed. On a decode replica, free and retractable tokens change with each token.
        if self._role == DECODE:
            return self.failed.size + self.waiting.size + self._loaded.size == 0
        if self.failed.size + self._inbox.unread.size > 0 or (self.tally is not None and self.tally.unsettled > 0) or (
                self._grammars is not None and self._grammars.rows.size > 0 and self._deferrals > 0):
            return False
        return self._chunked < 0 and self._queue.policy() != HRRN and (
            not self._have_others() or (self._is_full and not self._may_preempt))

    cdef inline bint _have_others(self) noexcept nogil:
        """Return whether requests wait that need no grammar, or have it."""
        return self.waiting.size > 0 if self._grammars is None else self._grammars.others_wait()

    cdef int repeat(self, int32_t count) except -1 nogil:
        cdef int32_t _
        for _ in range(count):
            if self._ratio <= self._least_ratio:
                break
            self._ratio = max(self._ratio - self._decay, self._least_ratio)
        self._deferrals = max(self._deferrals - count, 0)
        if self._inbox.is_on:
            self._inbox.repeat(count)
        return Scheduler.repeat(self, count)

    # ---- a pass

    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        if self._grammars is None:
            return self._schedule(batch, now_ns)
        self._grammars.hide()
        self._schedule(batch, now_ns)
        self._grammars.read(now_ns)
        self.opens_ns = self._grammars.next_ns()
        return self._grammars.show()

    cdef int _schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        if not self._inbox.is_on:
            return self._pass(batch, now_ns)
        self._inbox.hide()
        if self._inbox.reads(self._had_prompts):
            self._read()
        self._pass(batch, now_ns)
        if self._inbox.unread.size > 0 and batch.num_entries + batch.num_members + batch.num_preempted == 0 and (
                self.num_in_flight + self.num_standing == 0):
            self._read()                                # the server is idle: passes follow each other until one reads
            self._pass(batch, now_ns)
        return self._inbox.show()

    cdef int _pass(self, Batch* batch, int64_t now_ns) except -1 nogil:
        cdef bint is_prefill = False, is_idle = False
        batch.start_ns = now_ns
        batch.num_entries = batch.num_preempted = batch.num_members = batch.num_starved = 0
        clear_shape(&batch.shape)
        if self._room < self.num_slots:
            self._grow_own()
        if self._hicache is not None:
            self._begin_pass(now_ns)
        self._is_forming = True
        if self._grammars is not None:
            self._grammars.read(now_ns)
        if self._known_orders < self._next_order:
            self._take_over(batch)
        if self._role == DECODE:
            is_idle = True
            self._schedule_decodes(batch)
        while not is_idle and batch.num_entries + batch.num_members + batch.num_preempted == 0:
            is_idle = True
            self._merge()
            if self._may_prefill():
                is_prefill = self._prefill(batch)
            elif self.num_in_flight + self.num_standing == 0:
                is_idle = False                         # passes without prompts count even if nothing executes
            if not is_prefill and self._decoding.size > 0:
                self._decode(batch)
        if is_prefill:
            self._deferrals = self._interval
        if batch.num_entries + batch.num_members > 0:
            self._queue.processed += self._extended if is_prefill else self._carried if self._is_upstream else 0
        elif self._running.size + self.num_waiting() - self.failed.size + self.num_in_flight + self.num_standing + (
                self._grammars.rows.size if self._grammars is not None else 0) == 0:
            self._ratio = self._first_ratio
        self._had_prompts, self._had_decodes = is_prefill, self._decoding.size > 0
        self._known_orders = self._next_order
        self._is_forming = False
        self.close(batch, 0 if self._overlaps_batches else -1)
        return 0

    cdef int _take_over(self, Batch* batch) except -1 nogil:
        """Continue requests from other replicas: as decodes, or from the queue if their prompts are unfinished."""
        cdef int32_t slot = self._running.head, following, row
        while slot >= 0:
            following, row = self._links.next(slot), self._row(slot)
            if self._sequences[slot].order >= self._known_orders:
                self._progress[slot].published = self._progress[slot].pending = 0
                if self._sequences[slot].num_computed + 1 >= self._sequences[slot].num_tokens:
                    self._progress[slot].committed = self._sequences[slot].num_computed
                    self._list(slot)
                else:
                    self._put_back(batch, slot, self._decoding.size)
                    self.enqueue(row)
            slot = following
        return 0

    cdef bint _may_prefill(self) noexcept nogil:
        if self._deferrals == 0:
            return True
        if self._decoding.size < self._interval_least:
            self._deferrals = 0
            return True
        self._deferrals -= 1
        return False

    cdef int _merge(self) except -1 nogil:
        """Add the last batch's finished prompts to the decodes; detect requests that have left."""
        cdef int32_t i
        cdef int64_t computed
        if self._chunked >= 0:
            computed = self._sequences[self._chunked].num_computed
            if computed > self._progress[self._chunked].published:
                self._publish(self._chunked, computed)
        if self._somebody_left or self._drops_chunk or self._decoding.size == 0 < self._prefilled.size:
            self._is_full = False
        if self._prefilled.size > 0 and not self._had_decodes:
            self._carried = self._extended
        for i in range(self._prefilled.size if self._role != PREFILL else 0):
            self._list(self._prefilled.rows[i])
        self._prefilled.size = 0
        self._somebody_left = self._drops_chunk = False
        return 0

    # ---- prompts

    cdef bint _prefill(self, Batch* batch) except -1 nogil:
        cdef int32_t i
        if self._grammars is not None:
            self._grammars.collect(batch.start_ns)
            for i in range(self._grammars.ready.size):
                self._let_in(self._grammars.ready.rows[i])
        if self._may_preempt or self._decoding.size == 0:
            self._is_full = False
        if (self._is_full or self._queue.size() == 0) and self._chunked < 0:
            return False
        self._admitted.size = self._victims.size = 0
        self._left.goes_on = False
        if self._slots_left(0) <= 0 and self._chunked < 0 and not self._may_preempt:
            self._is_full = True
            return False
        if self._queue.policy() == ROUTING_KEY:
            self._queue.forget_keys()
            for i in range(self._decoding.size):
                self._queue.count_key(self._row(self._decoding.rows[i]))
        self._queue.sort()
        self._open_budget()
        if self._chunked >= 0 and not self._add_chunk():
            return False
        if self._adapters is not None:
            self._note_adapters()
        self._admit_waiting(batch)
        for i in range(self._victims.size):
            self.enqueue(self._victims.rows[i])
        if self._admitted.size == 0:
            return False
        self._launch(batch)
        return True

    cdef void _note_adapters(self) noexcept nogil:
        """Note the adapters of running requests, and of the prompt that goes on."""
        cdef int32_t i
        self._adapters.begin()
        for i in range(self._decoding.size):
            self._adapters.use(self._adapter_of(self._row(self._decoding.rows[i])))
        for i in range(self._admitted.size):
            self._adapters.use(self._adapter_of(self._row(self._admitted.rows[i])))

    cdef void _open_budget(self) noexcept nogil:
        cdef int64_t mixed = self._decoding.size if self._is_mixing else 0
        self._left.inputs, self._left.chunk = self._input_tokens - mixed, self._chunk_tokens - mixed
        self._left.current = mixed
        self._left.slack = 0
        if self.num_members > 0:
            self._left.total = <double>mixed + self._owed_about()
            self._left.slack = slack_of(self._left.total + <double>self._decoding.size)
        else:
            self._left.total = <double>mixed + self._owed_by_decoding()
        self._left.chunk_slot = -1
        self._left.has_needs = False

    cdef inline double _spare(self, double need) noexcept nogil:
        """Return the tokens that no request is expected to need, in SGLang's roundings if that may decide on `need`."""
        cdef double spare = <double>self._pages.available() - self._left.total
        if spare - self._left.slack <= need <= spare + self._left.slack and self._left.slack > 0:
            self._sum_up()
            spare = <double>self._pages.available() - self._left.total
        return spare

    cdef void _sum_up(self) noexcept nogil:
        """Sum up the expected needs in SGLang's order, and with its roundings."""
        cdef int32_t i, slot
        self._left.slack = 0
        self._left.total = <double>(self._decoding.size if self._is_mixing else 0) + self._owed_by_decoding()
        for i in range(self._admitted.size):
            slot = self._admitted.rows[i]
            self._left.total += <double>(self._paged(self._sequences[slot].scheduled) + self.kv.block_size + (
                0 if slot == self._left.chunk_slot else min(self._queue.most(self._row(slot)), <int64_t>MOST_RESERVED)))

    cdef void _charge(self, int64_t tokens, int64_t new) noexcept nogil:
        tokens = self._paged(tokens)
        self._left.total += <double>(tokens + self.kv.block_size + new)
        self._left.current += tokens + self.kv.block_size
        self._left.inputs -= tokens
        self._left.chunk -= tokens

    cdef bint _add_chunk(self) except -1 nogil:
        """Continue the prompt that was cut; return whether there is room.

        SGLang does not check for room, and would crash.
        """
        cdef Sequence* sequence = &self._sequences[self._chunked]
        cdef int64_t rest = sequence.num_tokens - sequence.num_computed, limit = -1, budget, most, reserved
        if self._queue.policy() == SHORTEST_PREFILL and self._left.chunk >= 2 * self.kv.block_size:
            budget = self._left.chunk
            reserved = self._queue.shorter_work(rest, budget - self.kv.block_size)
            if reserved > 0:
                limit = (budget - reserved) // self.kv.block_size * self.kv.block_size
        if self._left.slack > 0 and self._spare(0) - self._left.slack < <double>self._left.chunk:
            self._sum_up()
        most = min(self._left.chunk, <int64_t>self._spare(0))
        if most <= 0:
            most = self._left.chunk
        if limit >= 0:
            most = min(most, limit)
        if self._paged(sequence.num_computed + min(rest, most)) - self._paged(sequence.num_computed) > (
                self._pages.available()):
            return False
        self._queue.candidate(sequence.row).text = sequence.num_tokens
        self._left.goes_on = True
        add_row(&self._admitted, self._chunked)
        if rest > most:
            self._left.chunk_slot = self._chunked
        sequence.scheduled = <int32_t>min(rest, most)
        self._charge(sequence.scheduled, 0 if rest > most else min(
            self._queue.most(sequence.row), <int64_t>MOST_RESERVED))
        self._chunked = self._left.chunk_slot
        return True

    cdef int _admit_waiting(self, Batch* batch) except -1 nogil:
        cdef int32_t row
        cdef Verdict verdict
        cdef Candidate* it
        while self.waiting.size > 0:
            row = self.waiting.top()
            if self._verdict() == OTHER:
                break
            if self._queue.is_leaving(row) or (
                    self._adapters is not None and not self._adapters.has_room_for(self._adapter_of(row))):
                add_row(&self._waiting_on, self.waiting.pop())
                continue
            if self._admitted.size >= self._slots_left(self._left.goes_on):
                self._is_full = True
            if self._is_full and not (self._may_preempt and self._make_room(batch, row)):
                break
            if self._prefetches and not self._hicache.may_go(row, batch.start_ns):
                add_row(&self._waiting_on, self.waiting.pop())
                continue
            it = self._queue.candidate(row)
            it.text = <int32_t>self._queue.text(row)
            self._queue.adopt(row, it.text - 1)
            verdict = self._admit_head(batch, row, it)
            if verdict != GO_ON:
                if verdict == NO_TOKEN:
                    self._is_full = self._admitted.size + self._decoding.size > 0
                break
        while self._waiting_on.size > 0:
            self._waiting_on.size -= 1
            self.waiting.push_front(self._waiting_on.rows[self._waiting_on.size])
        if self._left.chunk_slot >= 0:
            self._chunked = self._left.chunk_slot
        return 0

    cdef Verdict _admit_head(self, Batch* batch, int32_t row, const Candidate* it) except? NO_TOKEN nogil:
        """Admit the head of the queue, if it fits; return whether another may follow."""
        cdef int64_t tokens = it.text - it.prefix - it.host, slot = self.top_slot(), found = it.prefix + it.host
        cdef bint is_cut = False
        cdef Verdict verdict
        if self._room < self.num_slots:
            self._grow_own()
        if self._admitted.size >= self._most_prompts:
            return OTHER
        self._pages.keep(<int32_t>slot, it.node, it.prefix)
        if self._ignores_end(row) and not self.kv.caches:
            verdict = self._fits_fixed(row, &tokens, &is_cut)
        else:
            verdict = self._fits(row, it.prefix, it.host, &tokens, &is_cut)
        if verdict == GO_ON and it.host > 0 and not self._pages.load_back(
                <int32_t>slot, it.host_node, it.host, row):
            found, tokens, is_cut = it.prefix, it.text - it.prefix, False       # recompute it, if that fits
            verdict = self._fits(row, it.prefix, 0, &tokens, &is_cut)
        if verdict != GO_ON:
            self._pages.release(<int32_t>slot, False)
            return verdict
        self.waiting.pop()
        if self._hicache is not None:
            self._hicache.begins_with(row, found - it.prefix)
        if self._requests[row].prompt_tokens > self._queue.longest_prompt:
            self._admit_stand_in(row, batch)
        else:
            self.admit(row, <int32_t>(found // self.kv.block_size), batch)
        self._sequences[slot].scheduled = <int32_t>tokens
        self._progress[slot].published, self._progress[slot].pending = found, 0
        add_row(&self._admitted, <int32_t>slot)
        if is_cut:
            self._left.chunk_slot = <int32_t>slot
        self._charge(tokens, 0 if is_cut else min(self._queue.most(row), <int64_t>MOST_RESERVED))
        if self._adapters is not None:
            self._adapters.use(self._adapter_of(row))
        return self._verdict()

    cdef int _admit_stand_in(self, int32_t row, Batch* batch) except -1 nogil:
        """Admit one token in place of a prompt that is too long; in the results its request never ran."""
        cdef int32_t slot = self._occupy(row)
        cdef Sequence* sequence = &self._sequences[slot]
        sequence.prompt_tokens = sequence.num_tokens = 1
        self._append(slot, batch)
        self._requests[row].scheduled_ns = NOT_SCHEDULED
        sequence.is_new = False
        return 0

    cdef Verdict _fits(self, int32_t row, int64_t prefix, int64_t host, int64_t* tokens, bint* is_cut) noexcept nogil:
        """Decide on a request with `host` tokens behind its prefix in host memory, which need pages."""
        cdef int64_t page = self.kv.block_size, left = max(self._queue.most(row) - self._outputs(row), 0)
        cdef double need = <double>(tokens[0] + host + min(left, <int64_t>MOST_RESERVED) + page)
        if need >= self._spare(need):
            return NO_TOKEN
        if not self._is_chunking:
            return self._joins(tokens[0])
        if self._paged(tokens[0]) <= self._left.chunk:
            return GO_ON if self._is_upstream else self._joins(tokens[0])
        if not self._may_cut() or (self._chunked >= 0 and self._queue.policy() == SHORTEST_PREFILL):
            return OTHER
        prefix += host
        tokens[0] = (prefix + self._left.chunk // page * page) // page * page - prefix
        is_cut[0] = True
        if tokens[0] <= 0:
            return OTHER
        return GO_ON if self._is_upstream else self._joins(tokens[0])

    cdef inline bint _may_cut(self) noexcept nogil:
        """Return whether a prompt may be cut; upstream several may be in a batch, see `_cut_short`."""
        return self._is_upstream or self._left.chunk_slot < 0

    cdef inline Verdict _joins(self, int64_t tokens) noexcept nogil:
        """Return whether max_prefill_tokens has room; the first prompt may have any length."""
        return OTHER if self._admitted.size > 0 and self._paged(tokens) >= self._left.inputs else GO_ON

    cdef Verdict _fits_fixed(self, int32_t row, int64_t* tokens, bint* is_cut) except? NO_TOKEN nogil:
        """Decide on a request that ignores the end token, without a tree: all running ones must fit to their ends."""
        cdef int64_t paged = self._paged(tokens[0]) + self.kv.block_size, freed = 0, after
        cdef double available = <double>self._pages.available()
        cdef int32_t i
        if not self._is_upstream and self._decoding.size + self._admitted.size == 0 and self._paged(
                self._queue.prompt(row) + self._queue.most(row)) <= self._pages.available():
            return self._cut_fixed(tokens, is_cut)
        if <double>paged > min(available - <double>self._left.current, self._spare(<double>paged)):
            return NO_TOKEN
        self._list_needs(row)
        for i in range(self._num_needs):
            after = self._num_needs - i
            if (available - <double>self._left.current - <double>paged + <double>freed
                    - self._needs[i].left * <double>after <= <double>after):
                return NO_TOKEN
            freed += self._needs[i].occupied
        return self._cut_fixed(tokens, is_cut)

    cdef Verdict _cut_fixed(self, int64_t* tokens, bint* is_cut) noexcept nogil:
        if self._is_chunking and tokens[0] > self._left.chunk:
            if self._left.chunk <= 0 or not self._may_cut():
                return OTHER
            tokens[0], is_cut[0] = self._left.chunk, True
        return GO_ON

    cdef int _list_needs(self, int32_t row) except -1 nogil:
        """List the needs of a candidate, of decoding requests, and of requests admitted in this pass."""
        cdef int32_t i
        if not self._left.has_needs:
            self._left.has_needs, self._num_needs = True, 0
            self._add_need(row, self._outputs(row), False)
            for i in range(self._decoding.size):
                self._add_need(self._row(self._decoding.rows[i]), self._written(self._decoding.rows[i]), False)
            for i in range(self._admitted.size):
                self._add_need(self._row(self._admitted.rows[i]), self._written(self._admitted.rows[i]), False)
            return 0
        return self._add_need(row, self._outputs(row), True)

    cdef int _add_need(self, int32_t row, int64_t outputs, bint is_late) except -1 nogil:
        """Insert a need behind equal ones; a late one before equal ones, and never behind the last."""
        cdef double left = <double>self._queue.most(row) * (1.0 if self._ignores_end(row) else self._ratio) - <double>(
            outputs)
        cdef int32_t place = 0, i
        if left <= 0:
            return 0
        if self._num_needs == self._needs_room:
            resize(&self._needs, (2 * <size_t>self._needs_room + 16) * sizeof(Need))
            self._needs_room = 2 * self._needs_room + 16
        while place < self._num_needs and (
                self._needs[place].left < left if is_late else self._needs[place].left <= left):
            place += 1
        if is_late and place == self._num_needs:
            place = max(self._num_needs - 1, 0)
        for i in range(self._num_needs, place, -1):
            self._needs[i] = self._needs[i - 1]
        self._needs[place].left = left
        self._needs[place].occupied = self._queue.prompt(row) + outputs
        self._num_needs += 1
        return 0

    cdef bint _make_room(self, Batch* batch, int32_t row) except -1 nogil:
        """Put back requests of worse priority that a waiting request needs the room of."""
        cdef Candidate* it = self._queue.candidate(row)
        cdef double need = <double>(it.text - it.prefix + min(self._queue.most(row), <int64_t>MOST_RESERVED))
        cdef int32_t i, count = 0, slot
        if self._left.slack > 0:
            self._sum_up()
        need -= self._spare(need)
        self._sort_running(True)
        while count < self._sorted.size:
            slot = self._sorted.rows[count]
            if self._preference(row) - self._preference(self._row(slot)) <= self._threshold:
                break
            count += 1
            need -= self._owed(slot)
            if need <= 0:
                break
        if count == 0 or need > 0:
            return False
        self._sorted.size = count
        for i in range(self._decoding.size):            # released in the order of the batch
            if has_row(&self._sorted, self._decoding.rows[i]):
                add_row(&self._sorted, self._decoding.rows[i])
        for i in range(count, self._sorted.size):
            row = self._row(self._sorted.rows[i])
            self._left.total -= self._owed(self._sorted.rows[i])
            self._add_victim(row, self._victims.size - (i - count))
            self._put_back(batch, self._sorted.rows[i], self._decoding.size - 1)
        return True

    cdef int _add_victim(self, int32_t row, int32_t first) except -1 nogil:
        """Record a request put back; those put back for one candidate are sorted by arrival (upstream has no order)."""
        cdef int32_t place = self._victims.size
        add_row(&self._victims, row)
        while place > first and self._victims.rows[place - 1] > row:
            self._victims.rows[place] = self._victims.rows[place - 1]
            place -= 1
        self._victims.rows[place] = row
        return 0

    cdef int _launch(self, Batch* batch) except -1 nogil:
        """Take pages for the batch of prompts, and add decodes to it if allowed."""
        cdef int64_t tokens = 0
        cdef int32_t i, slot
        for i in range(self._admitted.size):
            tokens += self._sequences[self._admitted.rows[i]].scheduled
        self._extended = tokens
        if self.kv.block_size > 1:
            tokens += <int64_t>self._admitted.size * self.kv.block_size
        self._pages.make_room(tokens)
        for i in range(self._admitted.size):
            slot = self._admitted.rows[i]
            self._pages.take(slot, self._sequences[slot].num_computed + self._sequences[slot].scheduled)
            self.add_entry(batch, slot)
            if slot == self._chunked:
                self._drops_chunk = True
            else:
                self._cut_short(slot)
                self._progress[slot].committed = self._pages.tokens(slot)
                add_row(&self._prefilled, slot)
                self._progress[slot].pending = self._pages.tokens(slot)
        if self._is_mixing and self._decoding.size > 0:
            self._leave_out_ending()
            if self._decoding.size > 0 and self._decodes_fit(&self._decoding):
                self._extended += self._decoding.size
                self._decode_all(batch)
                for i in range(self._decoding.size):
                    add_row(&self._prefilled, self._decoding.rows[i])
                self._decoding.size = 0
        if batch.num_members == 0 and self.overlaps == self._overlaps_batches:
            self.pass_over(batch)
        return 0

    # ---- the debug face

    def glance(self):
        """Return the state of the policy under SGLang's names: rows, tokens."""
        return {"running": [self._row(self._decoding.rows[i]) for i in range(self._decoding.size)],
                "chunked": self._row(self._chunked) if self._chunked >= 0 else None,
                "waiting": [row for row in self.waiting.rows() if not self._queue.is_leaving(row) and (
                    self._grammars is None or not has_row(&self._grammars.rows, row))],
                "batch_is_full": self._is_full, "ratio": self._ratio,
                "tokens": self._pages.tokens_free, "evicted": self._pages.tree.evicted}
