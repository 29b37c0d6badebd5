"""`tensorrt_llm`: in-flight batching as in TensorRT-LLM's batch manager.

Each iteration first selects requests with room, then forms their batch. `capacity_scheduler_policy` selects, in
order of arrival, up to `max_batch_size` requests; the first without room ends the search:

- GUARANTEED_NO_EVICT: begun requests, then others that find blocks for prompt and declared output free, beyond the
  blocks that all begun ones still need to their ends. No request is paused.
- MAX_UTILIZATION: requests that find blocks for the next step. If a begun one finds none, the last begun is paused: its
  blocks are freed, and its text is recomputed.
- STATIC_BATCH: as GUARANTEED_NO_EVICT, but no request is added while any generates.

The batch has at most `max_num_tokens`. Each generating request gets a token; the rest goes to prompts: whole, or with
`enable_chunked_context` in chunks, if not all fit whole. FIRST_COME_FIRST_SERVED gives the first prompt all tokens that
it can use, in whole blocks, then the next; EQUAL_PROGRESS gives a block to each prompt in turn, passing over those that
need more tokens than are left. A prompt that begins takes the blocks of all its text. With `batching_type = "STATIC"`
no request is added while any runs. Prompts beside generating requests wait until the batch has
`batch_wait_max_tokens_ratio` of max_num_tokens, for at most `batch_wait_timeout_iters` batches.

KV blocks, of 32 tokens by default, are counted by TensorRT-LLM's rule: free_gpu_memory_fraction of the memory that
weights and activations leave (tensorrt_llm/_torch/pyexecutor/_util.py).

Source: TensorRT-LLM, cpp/tensorrt_llm/batch_manager/{capacityScheduler,microBatchScheduler}.cpp, `_waiting_requests` of
tensorrt_llm/_torch/pyexecutor/py_executor.py, and "Useful Runtime Options" of its performance tuning guide. No run of
it was recorded: tests prove that these rules are kept (tests/oracle/tensorrt_llm.py). Known differences:

- A prompt counts without its tokens found in the cache, and takes no block for tokens in blocks that others hold.
- A prompt is not postponed because another one is computing the same block; both compute it. Blocks can be found from
  when they are scheduled, as with `vllm`.
- A paused text that has outgrown max_num_tokens is computed in chunks; upstream cuts it off at the longest prompt.
- A waiting request pauses no other, though it may have arrived before one that overtook it with a short prompt.
- Generating requests get tokens before prompts; upstream serves all in one order, so that with MAX_UTILIZATION and
  without chunks a prompt that arrived before them takes its tokens first.
- Drafts, beams, encoders, LoRA pages, agent trees and states of disaggregated serving are absent, as are policies that
  admit by number alone or prompts first: they have no key.
- Padding of static batches has no price.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport free
cimport cython

from simulator.core.memory cimport resize
from simulator.core.row_list cimport RowList, add_row
from simulator.domain.batch cimport clear_shape
from simulator.domain.iteration cimport Batch
from simulator.domain.request cimport DROPPED
from simulator.kv.base cimport blocks_for
from simulator.scheduling.base cimport Sequence
from simulator.scheduling.in_order cimport InOrder
from simulator.scheduling.waiting_queue cimport BY_ARRIVAL, WaitingQueue

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from simulator.scheduling.base import SchedulerFacts
from simulator.domain.kv_share import OF_VLLM
from simulator.scheduling.engine_memory import tensorrt_llm_needs
from simulator.latency.overheads.launches import EAGER_US_PER_LAYER, EagerUs
from simulator.scheduling.tensorrt_llm_overheads import around


class TensorrtLlmParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TensorRT-LLM's options, under its names."""

    ENGINE: ClassVar[str] = "TensorRT-LLM"
    ENGINE_DEFAULTS: ClassVar[dict] = {"block_size": 32, "gpu_memory_utilization": None}    # tokens_per_block

    max_batch_size: Annotated[int, Meta(ge=1, le=2**20, description="requests in a batch")] = 2048
    max_num_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1, description="tokens in a batch")] = 8192
    capacity_scheduler_policy: Annotated[
        Literal["GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"], Meta(description=(
            "requests with room: for prompt and declared output; for the next step, at the risk of pauses; as the "
            "first, but none while others generate"))] = "GUARANTEED_NO_EVICT"
    enable_chunked_context: Annotated[bool, Meta(description="prompts may be computed in chunks")] = False
    context_chunking_policy: Annotated[Literal["FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"], Meta(description=(
        "chunks cut if not all prompts fit: those of later prompts, or all alike"))] = "FIRST_COME_FIRST_SERVED"
    batching_type: Annotated[Literal["INFLIGHT", "STATIC"], Meta(description=(
        "INFLIGHT: requests join running ones; STATIC: they begin when no request runs"))] = "INFLIGHT"
    batch_wait_timeout_iters: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "most batches in a row without prompts, while their tokens are too few and others generate"))] = 0
    batch_wait_max_tokens_ratio: Annotated[float, Meta(ge=0, le=1, description=(
        "share of max_num_tokens that a batch with prompts has, unless batch_wait_timeout_iters batches waited"))] = 0.0
    free_gpu_memory_fraction: Annotated[float, Meta(gt=0, le=1, description=(
        "share for KV of the memory that weights and activations leave free"))] = 0.9
    cuda_graph_max_batch_size: Annotated[int, Meta(ge=0, le=2**20, description=(
        "sequences of the largest decode graph, cuda_graph_config.max_batch_size; 0: no graphs, cuda_graph_config = "
        "null, the host launches kernels one by one"))] = 128
    eager_us_per_layer: Annotated[EagerUs | None, Meta(description=EAGER_US_PER_LAYER)] = None


BATCH_WAIT = ("batch_wait_timeout_iters", "batch_wait_max_tokens_ratio")


cdef struct Context:            # a prompt that may have a chunk in the batch
    int64_t remaining           # tokens of its text not computed yet
    int64_t chunk               # tokens of its text in the batch
    int32_t slot                # slot if it runs; -1: it waits
    int32_t row


@cython.final
cdef class TensorrtLlm(InOrder):
    """Requests with room first, then chunks of prompts; see `TensorrtLlmParameters`."""

    Parameters = TensorrtLlmParameters

    cdef bint _evicts                   # MAX_UTILIZATION
    cdef bint _adds_to_generation       # not STATIC_BATCH
    cdef bint _adds_to_running          # INFLIGHT
    cdef bint _chunks                   # enable_chunked_context
    cdef bint _equally                  # EQUAL_PROGRESS
    cdef bint _outputs_are_prompts      # some prompt contains the output of another request
    cdef int64_t _longest_wait          # batch_wait_timeout_iters
    cdef int64_t _num_waited            # batches in a row that left prompts out
    cdef double _least_tokens           # of a batch with prompts
    cdef bint _leaves_out               # prompts of the batch formed last
    cdef Context* _contexts             # [_num_contexts] in order: prompts that run, then waiting ones that fit
    cdef int32_t _num_contexts
    cdef int32_t _num_generating        # begun requests that are not contexts
    cdef int32_t _room                  # contexts there is memory for
    cdef RowList _left                  # rows taken out of the queue, until they begin or go back
    cdef int64_t _whole_of_members      # blocks of members' prompts with all declared outputs

    def __init__(self, parameters, context):
        self.max_running = parameters.max_batch_size
        self._max_model_len = context.max_model_len
        self._token_budget = parameters.max_num_tokens
        self._chunks = parameters.enable_chunked_context
        self.longest_prompt = context.max_model_len - 1
        if not self._chunks:
            self.longest_prompt = min(self.longest_prompt, self._token_budget)
        self._evicts = parameters.capacity_scheduler_policy == "MAX_UTILIZATION"
        self._adds_to_generation = parameters.capacity_scheduler_policy != "STATIC_BATCH"
        self._adds_to_running = parameters.batching_type == "INFLIGHT"
        self._equally = parameters.context_chunking_policy == "EQUAL_PROGRESS"
        self._outputs_are_prompts = context.prompts_use_outputs
        self._longest_wait = parameters.batch_wait_timeout_iters
        self._least_tokens = parameters.batch_wait_max_tokens_ratio * parameters.max_num_tokens
        self.waiting = WaitingQueue(context.requests, context.demands, BY_ARRIVAL)

    def __dealloc__(self):
        free(self._contexts)
        free(self._left.rows)

    @staticmethod
    def around(parameters, deployment):
        """See Scheduler."""
        return around(parameters, deployment)

    @staticmethod
    def facts(parameters):
        """See Scheduler."""
        return SchedulerFacts(parameters.max_batch_size, parameters.max_num_tokens, takes_stages=False,
                              takes_threads=True)

    @classmethod
    def memory(cls, parameters, deployment, max_model_len):
        """See Scheduler."""
        return tensorrt_llm_needs(parameters)

    @staticmethod
    def faults(parameters, engine):
        """See Scheduler."""
        if engine.gpu_memory_utilization is not None:
            yield "gpu_memory_utilization", OF_VLLM.format("tensorrt_llm", "free_gpu_memory_fraction")
        if parameters.enable_chunked_context and parameters.max_num_tokens < engine.block_size:
            yield "max_num_tokens", (f"chunks of contexts are whole blocks: expected at least block_size = "
                                     f"{engine.block_size}, found {parameters.max_num_tokens}")
        if not parameters.enable_chunked_context and parameters.context_chunking_policy == "EQUAL_PROGRESS":
            yield "context_chunking_policy", 'goes with enable_chunked_context = true, found "EQUAL_PROGRESS"'
        for key, other in (BATCH_WAIT, BATCH_WAIT[::-1]):
            if getattr(parameters, key) > 0 and getattr(parameters, other) == 0:
                yield key, f"no batch waits with {other} = 0: expected {other} above 0, or {key} = 0"

    def limits(self):
        """See Scheduler."""
        by_text = (self._max_model_len - 1, f"are longer than max_model_len = {self._max_model_len:,} allows")
        return by_text, (self.longest_prompt, f"are longer than max_num_tokens = {self._token_budget:,}, which takes "
                                              "prompts whole, for enable_chunked_context is off")

    cdef int8_t refusal(self, int32_t row) noexcept nogil:
        if not self._evicts and self._whole_blocks(row) > self.kv.num_blocks:
            return DROPPED
        return InOrder.refusal(self, row)

    cdef inline int32_t _whole_blocks(self, int32_t row) noexcept nogil:
        """Return the blocks of a prompt with all of the declared output."""
        return blocks_for(min(<int64_t>self._requests[row].prompt_tokens + self._demands[row].max_tokens,
                              self._max_model_len), self.kv.block_size)

    cdef bint repeats(self) noexcept nogil:
        # Members take blocks that were free or reserved for them, so the head of the queue fits no better after them.
        return not self._leaves_out and (self.waiting.size == 0 or self._running.size >= self.max_running
                                         or not self._outputs_are_prompts)

    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        batch.start_ns = now_ns
        batch.num_entries = batch.num_preempted = batch.num_members = batch.num_starved = 0
        clear_shape(&batch.shape)
        self._budget = self._token_budget
        self._plan(batch)
        if not (self.grouping and self._continue_at_once(batch, self._token_budget)):
            self._continue_one_by_one(batch)
        self._begin_contexts(batch)
        self.close(batch, -1)
        return 0

    # ---- requests with room, and chunks of prompts

    cdef int _plan(self, Batch* batch) except -1 nogil:
        """Pause requests if necessary, and choose prompts and chunks of the batch, before anything is scheduled."""
        cdef int64_t due = self._due_blocks()
        cdef int32_t last, row
        while due > self.kv.free_blocks:
            last = self._last_begun()
            row = self._sequences[last].row
            self.preempt(last, batch)
            self.waiting.push(row)
            due = self._due_blocks()
        if (batch.num_preempted == 0 and (self._adds_to_generation or self._num_generating == 0)
                and (self._adds_to_running or self._running.size == 0)):
            self._add_fitting(self.kv.free_blocks - due, self._token_budget - self._num_generating)
        self._share(self._token_budget - self._num_generating)
        self._leave_out()
        return 0

    cdef int32_t _last_begun(self) noexcept nogil:
        """Return the slot of the last arrived running request; later ones may have begun before earlier ones."""
        cdef int32_t last = self._running.head, slot = self._links.next(self._running.head)
        while slot >= 0:
            if self.waiting.precedes(self._sequences[last].row, self._sequences[slot].row):
                last = slot
            slot = self._links.next(slot)
        return last

    cdef int64_t _due_blocks(self) except -1 nogil:
        """Return the blocks that begun requests lack for their next step; count generating ones and list contexts."""
        cdef int32_t slot = self._running.head, i
        cdef int64_t due = self.kv.due_at_most(self.phase) if self.grouping else 0
        cdef const Sequence* sequence
        self._num_contexts = 0
        self._num_generating = self.num_members
        for i in range(self._num_prefilling if self.grouping else self._running.size):
            slot = self._prefilling[i] if self.grouping else slot
            sequence = &self._sequences[slot]
            due += self.kv.lacking(slot, sequence.num_tokens)       # contexts have theirs, unless KV is from elsewhere
            if sequence.is_decoding:
                self._num_generating += 1
            else:
                self._add_context(sequence.row, slot, sequence.num_tokens - sequence.num_computed)
            slot = self._links.next(slot)
        return due

    cdef int _add_context(self, int32_t row, int32_t slot, int64_t remaining) except -1 nogil:
        cdef Context* context
        if self._num_contexts == self._room:
            self._room = max(2 * self._room, <int32_t>16)
            resize(&self._contexts, self._room * sizeof(Context))
        context = &self._contexts[self._num_contexts]
        context.row, context.slot, context.remaining, context.chunk = row, slot, remaining, 0
        self._num_contexts += 1
        return 0

    cdef int _add_fitting(self, int64_t free_blocks, int64_t budget) except -1 nogil:
        """Take requests that fit into `free_blocks` out of the queue, as long as tokens are left for them."""
        cdef int32_t row, hits, i
        cdef int64_t text, needed
        for i in range(self._num_contexts):
            budget -= self._contexts[i].remaining
        if not self._evicts and self.waiting.size > 0:
            free_blocks -= self._promised_blocks()
        while self.waiting.size > 0 and self._running.size + self._left.size < self.max_running:
            if budget <= 0 and not self._chunks:        # with chunks, whole blocks may leave tokens for later ones
                break
            row = self.waiting.top()
            text = <int64_t>self._requests[row].prompt_tokens + self._requests[row].output_tokens
            hits = self.kv.lookup(row, <int32_t>text)
            needed = self.kv.needed(self.top_slot(), hits, text)
            if not self._evicts:
                needed += max(self._whole_blocks(row) - blocks_for(text, self.kv.block_size), 0)
            if needed > free_blocks:
                break
            free_blocks -= needed
            text -= <int64_t>hits * self.kv.block_size
            budget -= text
            add_row(&self._left, self.waiting.pop())
            self._add_context(row, -1, text)
        return 0

    cdef int64_t _promised_blocks(self) noexcept nogil:
        """Return the blocks that begun requests still need to their ends, after this iteration."""
        cdef int64_t promised = self._whole_of_members - self._blocks_of_members(), tokens
        cdef int32_t slot = self._running.head, i
        cdef const Sequence* sequence
        for i in range(self._num_prefilling if self.grouping else self._running.size):
            slot = self._prefilling[i] if self.grouping else slot
            sequence = &self._sequences[slot]
            tokens = max(sequence.num_computed + 1, sequence.num_tokens)
            promised += max(self._whole_blocks(sequence.row) - blocks_for(tokens, self.kv.block_size), 0)
            slot = self._links.next(slot)
        return promised

    cdef int64_t _blocks_of_members(self) noexcept nogil:
        """Return the blocks of members once this iteration is scheduled: tokens plus free slots in last blocks."""
        cdef int64_t tokens = self.member_tokens
        cdef int32_t phase, size = self.kv.block_size
        for phase in range(size if self.num_members > 0 else 0):        # members by iterations until the next block
            tokens += self.kv.due(phase) * <int64_t>((phase - self.phase - 1 + size) % size)
        return tokens // size

    cdef int join(self, int32_t slot) except -1 nogil:
        self._whole_of_members += self._whole_blocks(self._sequences[slot].row)
        return InOrder.join(self, slot)

    cdef void leave(self, int32_t slot) noexcept nogil:
        self._whole_of_members -= self._whole_blocks(self._sequences[slot].row)
        InOrder.leave(self, slot)

    cdef void _share(self, int64_t budget) noexcept nogil:
        """Share tokens among contexts: whole prompts, or chunks if not all fit."""
        cdef int64_t total = 0, tokens, given = 1
        cdef int32_t i
        for i in range(self._num_contexts):
            total += self._contexts[i].remaining
        if self._chunks and self._equally and total > budget:
            while given > 0 and budget > 0:
                given = 0
                for i in range(self._num_contexts):
                    tokens = min(<int64_t>self.kv.block_size, self._contexts[i].remaining - self._contexts[i].chunk)
                    if tokens <= budget:
                        self._contexts[i].chunk += tokens
                        budget -= tokens
                        given += tokens
            return
        for i in range(self._num_contexts):
            tokens = min(self._contexts[i].remaining, max(budget, 0))
            if tokens < self._contexts[i].remaining:
                if self._chunks:
                    tokens -= tokens % self.kv.block_size
                elif self._contexts[i].remaining <= self._token_budget and self._contexts[i].slot < 0:
                    return                      # whole or not at all; no other prompt overtakes it
            self._contexts[i].chunk = tokens
            budget -= tokens

    cdef void _leave_out(self) noexcept nogil:
        """Take the chunks of contexts back if the batch has too few tokens, and has not waited long enough."""
        cdef int64_t tokens = 0
        cdef int32_t i
        for i in range(self._num_contexts):
            tokens += self._contexts[i].chunk
        self._leaves_out = (tokens > 0 and self._num_generating > 0 and self._num_waited < self._longest_wait
                            and self._num_generating + tokens < self._least_tokens)
        if self._leaves_out:
            self._num_waited += 1
            for i in range(self._num_contexts):
                self._contexts[i].chunk = 0
        elif tokens > 0 and self._num_generating > 0:
            self._num_waited = 0

    def check(self):
        """Raise RuntimeError unless the counted blocks of members match their texts; see Scheduler."""
        members = [slot for slot in self.slots() if self._sequences[slot].is_member]
        whole = sum(self._whole_blocks(self._sequences[slot].row) for slot in members)
        blocks = sum(blocks_for(self.computed(slot) + 1, self.kv.block_size) for slot in members)
        if (whole, blocks) != (self._whole_of_members, self._blocks_of_members()):
            raise RuntimeError(f"members have {blocks} of {whole} blocks, {self._blocks_of_members()} of "
                               f"{self._whole_of_members} counted")
        InOrder.check(self)

    # ---- running requests

    cdef int64_t _needed_tokens(self, const Sequence* sequence, int64_t threshold) noexcept nogil:
        cdef int32_t i = 0
        if sequence.is_member or sequence.is_decoding:
            return 1
        while self._contexts[i].row != sequence.row:
            i += 1
        return self._contexts[i].chunk

    cdef int _continue_one_by_one(self, Batch* batch) except -1 nogil:
        """Visit the running list in order, if not all generating requests have a turn."""
        cdef int32_t slot = self._running.head
        cdef int64_t tokens, computed
        while slot >= 0:
            self._sequences[slot].scheduled = 0
            slot = self._links.next(slot)
        slot = self._running.head
        while slot >= 0 and self._budget > 0:
            tokens = min(self._needed_tokens(&self._sequences[slot], self._token_budget), self._budget)
            if tokens > 0:
                if self._sequences[slot].is_member:
                    self.kv.settle(slot, self.computed(slot))
                computed = self.computed(slot) + tokens
                self.kv.allocate(slot, self._sequences[slot].row, 0, computed, 0, 0, computed)      # there is room
                self._sequences[slot].scheduled = <int32_t>tokens
                self._budget -= tokens
            slot = self._links.next(slot)
        return self._gather(batch)

    # ---- waiting requests

    cdef int _begin_contexts(self, Batch* batch) except -1 nogil:
        """Admit requests that got a chunk; the others go back to the queue."""
        cdef int32_t first = self._num_contexts - self._left.size, i
        cdef bint fits = batch.num_preempted == 0
        for i in range(self._left.size):
            if fits and self._contexts[first + i].chunk > 0:
                fits = self._begin_context(batch, &self._contexts[first + i])
                self._contexts[first + i].slot = 0 if fits else -1
        while self._left.size > 0:
            self._left.size -= 1
            if self._contexts[first + self._left.size].slot < 0:
                self.waiting.push_front(self._left.rows[self._left.size])
        return 0

    cdef bint _begin_context(self, Batch* batch, const Context* context) except -1 nogil:
        cdef int32_t row = context.row, slot = self.top_slot()
        cdef int64_t text = <int64_t>self._requests[row].prompt_tokens + self._requests[row].output_tokens
        cdef int32_t hits = self.kv.lookup(row, <int32_t>text)      # fewer, if requests before it took cached blocks
        cdef int64_t computed = <int64_t>hits * self.kv.block_size
        cdef int64_t tokens = min(context.chunk, text - computed)
        if not self.kv.allocate(slot, row, hits, text, 0, 0, computed + tokens):
            return False
        self.admit(row, hits, batch)
        self._sequences[slot].scheduled = <int32_t>tokens
        self.add_entry(batch, slot)
        return True
