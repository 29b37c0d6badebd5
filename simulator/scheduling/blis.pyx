"""`blis`: continuous batching as BLIS models it.

As in vLLM, running requests are scheduled first, then waiting ones, within a token budget. Unlike vLLM, a preempted
request starts over: its output is generated again, token by token; /token_times and the gaps between tokens show every
attempt, all other results the last one. The queue may be sorted, and a less urgent request may be the victim. Source:
inference-sim (BLIS) at f90a1e3a, sim/batch_formation.go and sim/simulator.go.

Where BLIS behaves unlike any engine, `upstream_compat` follows it:

- An iteration's results take effect when it begins: a request that completes in it frees its blocks and its place a
  step early, and if no request is left, one that arrives meanwhile is served beside the iteration.
- A prompt found whole in the cache costs nothing, and holds no block of the tokens found.
- Tokens of a prompt found in the cache are no context of its first chunk.
- An iteration without tokens takes time.

With `upstream_compat`, and where block tables are observed, no sequence is a member: an iteration costs O(batch).
"""
from libc.stdint cimport INT64_MAX, int8_t, int32_t, int64_t
from libc.stdlib cimport free
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.row_list cimport RowList, add_row
from simulator.domain.batch cimport BatchShape, Chunk, clear_shape
from simulator.domain.iteration cimport Batch
from simulator.domain.request cimport COMPLETED, DROPPED, Request
from simulator.kv.blis_cache cimport BlisKV
from simulator.kv.mirror cimport IS_PUT_OFF, NO_WAIT, Mirror
from simulator.scheduling.adapter_loads cimport AdapterLoads
from simulator.scheduling.base cimport Sequence
from simulator.scheduling.blis_scores cimport Scores
from simulator.scheduling.in_order cimport InOrder
from simulator.scheduling.waiting_queue cimport (
    BY_ARRIVAL, BY_PRIORITY, BY_RANKING, FIRST_COME, LATEST_FIRST, REVERSE_PRIORITY, SHORTEST_FIRST, SHORTEST_OUTPUT,
    WaitingQueue)

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.kv.blis_sparse import SparseBlisKV
from simulator.kv.counting import CountingKV
from simulator.scheduling.base import SchedulerFacts
from simulator.scheduling.blis_lora import BlisLoraParameters, around, label_faults, new_loads, new_tally
from simulator.scheduling.blis_scores import AGE_WEIGHT

Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Score = Annotated[float, Meta(ge=-1e9, le=1e9)]


class BlisParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """BLIS's options, under vLLM's names where vLLM has them."""

    max_num_seqs: Annotated[int, Meta(ge=1, le=2**20, description="running requests")] = 256
    max_num_batched_tokens: Annotated[Tokens, Meta(description="tokens in a batch")] = 2048
    long_prefill_token_threshold: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "longest prompt chunk; 0: no limit"))] = 0
    policy: Annotated[Literal["fcfs", "priority-fcfs", "sjf", "reverse-priority", "shortest-output"], Meta(description=(
        "order of the waiting queue: in order of arrival, most urgent first, shortest prompt first, least urgent "
        "first; not in BLIS: shortest output first, as output_knowledge predicts it"))] = "fcfs"
    preemption_policy: Annotated[Literal["fcfs", "priority"], Meta(description=(
        "the victim: the last admitted, or the least urgent"))] = "fcfs"
    priority_policy: Annotated[Literal["class", "constant", "slo-based", "inverted-slo"], Meta(description=(
        "urgency of a request: by its priority; all equal; the older the more; the older the less"))] = "class"
    age_weight: Annotated[float, Meta(ge=-1e6, le=1e6, extra={"unit": "1/us"}, description=(
        "slo-based: score = base + age_weight x age, inverted-slo: base - age_weight x age, the highest is most "
        "urgent; without a base only the sign of age_weight matters, as all requests age alike"))] = AGE_WEIGHT
    base: Annotated[Score | dict[str, Score], Meta(description=(
        "base of the scores of slo-based and inverted-slo, by SLO class, 0 for other classes; or one number for "
        "all requests, as in BLIS, which changes no order"))] = {}
    blis_version: Annotated[Literal["0.7", "head"], Meta(description=(
        "version of BLIS; in 0.7 a request that starts over keeps the time of its first token"))] = "head"
    upstream_compat: Annotated[bool, Meta(description=(
        "follow BLIS where no engine does so: completions take effect a step early, prompts found whole are free, "
        "iterations without tokens take time"))] = False
    lora: Annotated[BlisLoraParameters | None, Meta(description="LoRA adapters; absent: they cost nothing")] = None

    def __post_init__(self):
        if not self.scores:
            return
        key = "base" if self.base != {} else "age_weight"
        if self.priority_policy not in ("slo-based", "inverted-slo"):
            raise ValueError(f'{key}: expected none with priority_policy = "{self.priority_policy}": scores are those '
                             'of "slo-based" and "inverted-slo"')
        if self.policy not in ("priority-fcfs", "reverse-priority") and self.preemption_policy != "priority":
            raise ValueError(f'{key}: expected none with policy = "{self.policy}" and preemption_policy = "fcfs": they '
                             'ask for no urgency, "priority-fcfs" does')

    @property
    def scores(self):
        """Return whether urgency depends on more than age."""
        return self.base != {} or self.age_weight != AGE_WEIGHT

    @property
    def bases(self):
        """Return the base of each SLO class that has one of its own."""
        return self.base if isinstance(self.base, dict) else {}

    @property
    def reads_expected_tokens(self):
        """Return whether predictions of output lengths matter."""
        return self.policy == "shortest-output"


ADVICE = {"livelock": "give more blocks, or lower max_num_seqs"}

# Order of the queue by `policy` and `priority_policy`. All requests age alike, so the oldest stays the oldest.
ORDERS = {
    "fcfs": dict.fromkeys(("class", "constant", "slo-based", "inverted-slo"), FIRST_COME),
    "sjf": dict.fromkeys(("class", "constant", "slo-based", "inverted-slo"), SHORTEST_FIRST),
    "shortest-output": dict.fromkeys(("class", "constant", "slo-based", "inverted-slo"), SHORTEST_OUTPUT),
    "priority-fcfs": {"class": BY_PRIORITY, "constant": BY_ARRIVAL, "slo-based": BY_ARRIVAL,
                      "inverted-slo": LATEST_FIRST},
    "reverse-priority": {"class": REVERSE_PRIORITY, "constant": BY_ARRIVAL, "slo-based": LATEST_FIRST,
                         "inverted-slo": BY_ARRIVAL},
}


@cython.final
cdef class Blis(InOrder):
    """Iterations of a token budget, and restarts; see `BlisParameters`."""

    Parameters = BlisParameters

    cdef BlisKV _blocks                 # kv; None without upstream_compat
    cdef Mirror _mirror                 # the tier, if it is a mirror in host memory; else None
    cdef AdapterLoads _loads            # None: adapters cost nothing
    cdef RowList _passed_over           # rows taken out of the queue while the batch is formed
    cdef bint _takes_over               # other replicas compute the prompts of some requests
    cdef int32_t _num_taken             # requests just admitted to this batch with KV from another replica
    cdef int64_t _threshold             # longest chunk of a prompt, in tokens
    cdef Scores _scores                 # urgency by scores; None: by priority, by age or none
    cdef bint _by_urgency               # the victim is the least urgent, not the last admitted
    cdef bint _has_classes              # urgency goes by the request's priority, not by its age
    cdef bint _oldest_last              # urgency goes by age: the older, the less urgent
    cdef bint _forgets_first_token      # head: a request that starts over loses its first token's time
    cdef bint _is_upstream              # upstream_compat
    cdef int64_t _failures              # allocations for a last token that failed
    cdef bint _outputs_are_prompts      # some prompt contains the output of another request

    def __init__(self, parameters, context):
        self._blocks = context.kv if parameters.upstream_compat else None
        self._mirror = context.tier if isinstance(context.tier, Mirror) else None
        self._takes_over = context.tier is not None and self._mirror is None
        self.max_running = parameters.max_num_seqs
        self.longest_prompt = context.max_model_len - 1
        self._max_model_len = context.max_model_len
        self._token_budget = parameters.max_num_batched_tokens
        self._threshold = parameters.long_prefill_token_threshold or INT64_MAX
        self._by_urgency = parameters.preemption_policy == "priority"
        self._has_classes = parameters.priority_policy == "class"
        self._oldest_last = parameters.priority_policy == "inverted-slo"
        self._forgets_first_token = parameters.blis_version == "head"
        self._is_upstream = parameters.upstream_compat
        self._outputs_are_prompts = context.prompts_use_outputs
        self.grouping = context.fast_forward and not context.kv.tracks_identity
        self.ends_at_start = self._is_upstream
        if self._is_upstream:           # 0.7 uses the latency model's time of an empty batch
            self.pause_ns = 1000 if parameters.blis_version == "head" else -1
        self.waiting = WaitingQueue(
            context.requests, context.demands, ORDERS[parameters.policy][parameters.priority_policy])

        if parameters.scores:
            self._score(parameters, context)
        if parameters.lora is not None and len(context.labels.get("adapter", ())) > 0:
            self._loads = new_loads(parameters.lora, context.labels["adapter"])
            self.tally, self.tracks_adapters = new_tally(parameters.lora, context), True

    def __dealloc__(self):
        free(self._passed_over.rows)

    def _score(self, parameters, context):
        """Rank by scores, in the queue too if its policy uses urgency."""
        weight = -parameters.age_weight if self._oldest_last else parameters.age_weight
        self._scores = Scores(context, parameters.bases, weight, parameters.policy == "reverse-priority")
        if parameters.policy in ("priority-fcfs", "reverse-priority"):
            self.waiting = WaitingQueue(context.requests, context.demands, BY_RANKING)
            self.waiting.rank_by(self._scores)

    @staticmethod
    def around(parameters, deployment):
        """See Scheduler."""
        return around(parameters.lora)

    @staticmethod
    def facts(parameters):
        """See Scheduler."""
        return SchedulerFacts(parameters.max_num_seqs, parameters.max_num_batched_tokens, takes_stages=False,
                              takes_threads=True, takes_reserved=True,
                              blocks_held_back=1)           # num_gpu_blocks counts one more, as for vllm

    @staticmethod
    def label_faults(parameters, labels):
        """See Scheduler."""
        known = {str(name) for name in labels.get("slo_class", ())}
        return [*label_faults(parameters.lora, labels.get("adapter", ())),
                *(("base", f'no request is of SLO class "{name}"') for name in parameters.bases if name not in known)]

    def counts(self):
        """See Scheduler: BLIS counts failures for the last token of complete requests, which needs no KV."""
        adapters = {"adapters": self._loads.counts()} if self.tracks_adapters else {}
        return InOrder.counts(self) | {"kv_allocation_failures": self._failures} | adapters

    def advice(self, stall_reason):
        """See Scheduler."""
        return ADVICE.get(stall_reason) or InOrder.advice(self, stall_reason)

    @staticmethod
    def kv_cache(parameters, plan):
        """See Scheduler."""
        if parameters.upstream_compat or plan.with_identity and plan.with_tables:
            return BlisKV(plan.num_blocks, plan.block_size, plan.content, plan.enable_prefix_caching)
        if plan.with_identity and plan.enable_prefix_caching:
            return SparseBlisKV(plan.num_blocks, plan.block_size, plan.content)
        return CountingKV(plan.num_blocks, plan.block_size)

    cdef int32_t reserve(self, int32_t row, int64_t num_tokens, int64_t num_computed) except -2 nogil:
        cdef int32_t slot
        if not self._is_upstream:
            return InOrder.reserve(self, row, num_tokens, num_computed)
        slot = self.top_slot()              # blocks of the text left by other requests are not reused
        if not self.kv.allocate(slot, row, 0, num_computed, 0, 0, num_computed):
            return -1
        self._occupy_parked(slot, row, num_tokens, 0)
        return slot

    def why_dropped(self):
        """See Scheduler."""
        return f"are longer than max_model_len = {self._max_model_len:,} with all that they may generate, or larger " \
               "than the KV pool"

    cdef int8_t refusal(self, int32_t row) noexcept nogil:
        cdef int64_t text = <int64_t>self._requests[row].prompt_tokens + self._demands[row].max_tokens
        return DROPPED if text > self._max_model_len else InOrder.refusal(self, row)

    cdef int64_t _next_transfer_ns(self) noexcept nogil:
        return InOrder._next_transfer_ns(self) if self._mirror is None or self.waiting.size > 0 else NEVER_NS

    cdef bint repeats(self) noexcept nogil:
        # Members alone cannot make room for the head of the queue, unless their outputs are part of its prompt. Nor
        # does it need fewer blocks once they have taken cached blocks of it: it computes all its rest in one batch.
        cdef int32_t row
        if self.waiting.size == 0 or self._running.size >= self.max_running:
            return True
        row = self.waiting.top()
        if self._loads is not None and self._demands[row].adapter >= 0:
            return False            # its adapter may be loaded, or evicted for another
        return not self._outputs_are_prompts and (
            self._requests[row].prompt_tokens <= min(self._threshold, self._token_budget - self.num_members)
            or self.kv.most_hits(row, self._requests[row].prompt_tokens) == 0)

    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        batch.start_ns = now_ns
        batch.num_entries = batch.num_preempted = batch.num_members = batch.num_starved = 0
        clear_shape(&batch.shape)
        self._budget = self._token_budget
        if self._mirror is not None:
            self._mirror.begins(now_ns)
        if self._loads is not None:
            self._load_for_head(now_ns)
        if not (self.grouping and self._continue_at_once(batch, self._threshold)):
            self._continue_one_by_one(batch)
        if self._mirror is not None:
            self._mirror.look_again()
        if batch.num_preempted == 0:
            self._admit_waiting(batch)
            self._take_back_passed_over()
        self.close(batch, -1)
        if self._is_upstream:
            self._price_admissions(batch)
        if self._mirror is not None:
            self._keep_mirror(batch)
        return 0

    cdef void _load_for_head(self, int64_t now_ns) noexcept nogil:
        """Start loading the adapter of the head of the queue if it is not loaded; called before a batch is formed."""
        cdef int32_t slot = self._running.head, adapter
        self._loads.settle(now_ns)
        adapter = self._demands[self.waiting.top()].adapter if self.waiting.size > 0 else -1
        if not self._loads.is_here(adapter, now_ns):
            self._loads.unpin_all()
            while slot >= 0:
                self._loads.pin(self._demands[self._sequences[slot].row].adapter)
                slot = self._links.next(slot)
            self._loads.load(adapter, now_ns)
        self.opens_ns = self._loads.done_ns

    cdef void forget(self) noexcept nogil:
        if self._loads is not None:
            self._loads.forget()
            self.opens_ns = NEVER_NS

    cdef bint holds_adapter(self, int32_t adapter, int64_t now_ns) noexcept nogil:
        return self._loads is not None and self._loads.is_here(adapter, now_ns)

    cdef int _keep_mirror(self, Batch* batch) except -1 nogil:
        """Copy full blocks of running requests to host memory, unless blocks move there; wait for reloads."""
        cdef int32_t slot = self._running.head
        batch.stall_ns = self._mirror.take_waiting_ns() if self.pauses(batch) else 0
        while slot >= 0 and not self._mirror.moves:
            self._blocks.mirror(slot)
            slot = self._links.next(slot)
        return 0

    # ---- phase 1: running requests

    cdef int _continue_one_by_one(self, Batch* batch) except -1 nogil:
        """Visit the running list in order, preempting where blocks run out."""
        cdef int32_t slot = self._running.head
        cdef Sequence* sequence
        cdef int64_t tokens
        while slot >= 0:
            self._sequences[slot].scheduled = 0
            slot = self._links.next(slot)
        slot = self._running.head
        while slot >= 0 and self._budget > 0:
            sequence = &self._sequences[slot]
            tokens = min(self._needed_tokens(sequence, self._threshold), self._budget)
            if tokens > 0:
                if sequence.is_member:
                    self.kv.settle(slot, self.computed(slot))
                if not self._make_room(batch, slot, tokens):
                    break
                sequence.scheduled = <int32_t>tokens
                self._budget -= tokens
            slot = self._links.next(slot)
        return self._gather(batch)

    cdef int64_t _needed_tokens(self, const Sequence* sequence, int64_t threshold) noexcept nogil:
        if sequence.is_member:
            return 1
        return self._chunk(sequence.num_tokens, sequence.num_computed, threshold)

    cdef inline int64_t _chunk(self, int64_t text, int64_t computed, int64_t most) noexcept nogil:
        """Return the tokens of a text that a request computes in one batch."""
        return min(min(text - computed, most), self._max_model_len - computed - 1)

    cdef int _make_room(self, Batch* batch, int32_t slot, int64_t tokens) except -1 nogil:
        """Allocate for a running sequence, preempting others; return 0 if it is preempted itself."""
        cdef Sequence* sequence = &self._sequences[slot]
        cdef int64_t computed = self.computed(slot) + tokens
        cdef int32_t victim
        while not self.kv.allocate(slot, sequence.row, 0, computed, 0, 0, computed):
            victim = self._victim()
            self._budget += self._sequences[victim].scheduled
            self._evict(batch, victim)
            if victim == slot:
                return 0
        return 1

    cdef int32_t _victim(self) noexcept nogil:
        """Choose the victim: the last admitted, or with urgency the last of the least urgent."""
        cdef int32_t worst = self._running.tail, slot
        if self._by_urgency:
            slot = self._links.prev(worst)
            while slot >= 0:
                if self._yields_to(slot, worst):
                    worst = slot
                slot = self._links.prev(slot)
        return worst

    cdef bint _yields_to(self, int32_t slot, int32_t other) noexcept nogil:
        """Is the request in `slot` less urgent than that in `other`, or as urgent and younger?"""
        cdef int32_t row = self._sequences[slot].row, other_row = self._sequences[other].row
        cdef int64_t arrival_ns = self._requests[row].arrival_ns, other_ns = self._requests[other_row].arrival_ns
        if self._scores is not None and self._scores.place(row) != self._scores.place(other_row):
            return self._scores.place(row) > self._scores.place(other_row)
        if self._has_classes and self._demands[row].priority != self._demands[other_row].priority:
            return self._demands[row].priority > self._demands[other_row].priority
        return arrival_ns < other_ns if self._oldest_last and self._scores is None else arrival_ns > other_ns

    cdef int _evict(self, Batch* batch, int32_t slot) except -1 nogil:
        cdef Request* request = &self._requests[self._sequences[slot].row]
        cdef int32_t row = self._sequences[slot].row
        self.preempt(slot, batch)
        if (self._mirror is not None and batch.num_preempted == 1 and self._running.size == 0
                and self._mirror.wait_of(row) == NO_WAIT):      # waiting requests keep all other blocks
            batch.preempted[0].freed_blocks = self.kv.num_blocks
        request.output_tokens = 0
        if self._forgets_first_token:
            request.first_token_ns = -1
        return self.waiting.push_front(row)

    # ---- phase 2: waiting requests

    cdef int _admit_waiting(self, Batch* batch) except -1 nogil:
        cdef int32_t row, hits, slot
        cdef int64_t prompt, tokens, computed
        self._num_taken = 0
        while self._budget > 0 and self.waiting.size > 0 and self._running.size < self.max_running:
            row = self.waiting.top()
            if self._passes_over(row):
                continue
            if self._loads is not None and not self._loads.is_here(self._demands[row].adapter, batch.start_ns):
                break
            if self._takes_over and self.tier.slot_of(row) >= 0:
                if not self._take_over(batch, row, self.tier.slot_of(row)):
                    break
                continue
            prompt = self._requests[row].prompt_tokens
            hits = self.kv.lookup(row, <int32_t>prompt + self._is_upstream)
            computed = <int64_t>hits * self.kv.block_size
            tokens = self._chunk(prompt, computed, min(self._threshold, self._budget))
            slot = self.top_slot()
            if tokens == 0:
                self._blocks.skip(slot, row, prompt)
            elif not self.kv.allocate(slot, row, hits, computed + tokens, 0, 0, computed + tokens):
                if self._passes_over(row):
                    continue
                break
            self.waiting.pop()
            self.admit(row, hits, batch)
            if self._loads is not None:
                self._loads.use(self._demands[row].adapter)
            self._sequences[slot].scheduled = <int32_t>tokens
            self.add_entry(batch, slot)
            self._budget -= tokens
        return 0

    cdef bint _passes_over(self, int32_t row) except -1 nogil:
        """Set the head of the queue aside if it waits for blocks from below host memory."""
        if self._mirror is None or self._mirror.wait_of(row) != IS_PUT_OFF:
            return False
        self.waiting.pop()
        add_row(&self._passed_over, row)
        return True

    cdef int _take_back_passed_over(self) except -1 nogil:
        while self._passed_over.size > 0:
            self._passed_over.size -= 1
            self.waiting.push_front(self._passed_over.rows[self._passed_over.size])
        return 0

    cdef bint _take_over(self, Batch* batch, int32_t row, int32_t slot) except -1 nogil:
        """Admit a request after its KV has arrived; return False if there is no block for its next token."""
        cdef int64_t computed = <int64_t>self._requests[row].prompt_tokens + 1
        if not self.kv.allocate(slot, row, 0, computed, 0, 0, computed):
            return False
        self.waiting.pop()
        self.tier.runs(row)
        self.run_parked(slot, batch)
        self._sequences[slot].scheduled = 1
        self.add_entry(batch, slot)
        self._budget -= 1
        self._num_taken += 1
        return True

    cdef void _price_admissions(self, Batch* batch) noexcept nogil:
        """Take prompt tokens found in the cache out of the shape."""
        cdef BatchShape* shape = &batch.shape
        cdef int32_t last = shape.num_chunks, i
        cdef Chunk* chunk
        for i in range(batch.num_entries):              # the chunks of admissions are the last ones
            shape.num_chunks -= batch.entries[i].is_admission
        shape.num_chunks += self._num_taken             # requests with KV from elsewhere have no chunk
        for i in range(shape.num_chunks, last):
            chunk = &batch.chunks[i]
            shape.prefill_context_tokens -= chunk.context_tokens
            shape.prefill_token_pairs -= 2 * <int64_t>chunk.tokens * chunk.context_tokens
            if chunk.tokens > 0:
                batch.chunks[shape.num_chunks] = chunk[0]
                batch.chunks[shape.num_chunks].context_tokens = 0
                shape.num_chunks += 1
            else:
                shape.num_sequences -= 1
                shape.num_samples -= 1

    cdef int finish(self, int32_t slot) except -1 nogil:
        cdef Sequence* sequence = &self._sequences[slot]
        cdef const Request* request = &self._requests[sequence.row]
        cdef int64_t computed = self.computed(slot)
        if request.status == COMPLETED and request.output_tokens > 0:   # the last token exists: allocate for it
            if sequence.is_member:
                self.kv.settle(slot, computed)
                sequence.scheduled = 1                                  # scheduled individually
            self._failures += not self.kv.allocate(slot, sequence.row, 0, computed + 1, 0, 0, computed + 1)
        return self._vacate(slot, False)
