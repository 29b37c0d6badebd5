# cython: language_level=3
"""A scheduler of one's own, compiled: the documented example.

    cythonize -i whole_batches.pyx          # beside the experiment; the simulator's .pxd files are installed with it

    [engine]
    scheduler = "whole_batches:WholeBatches"
    max_num_seqs = 8
"""
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.string cimport memset

from simulator.domain.batch cimport BatchShape
from simulator.domain.iteration cimport Batch
from simulator.domain.request cimport DROPPED
from simulator.kv.base cimport blocks_for
from simulator.scheduling.base cimport Scheduler, Sequence
from simulator.scheduling.waiting_queue cimport FIRST_COME, WaitingQueue

from typing import Annotated

import msgspec

from simulator.scheduling.contract import MemoryNeeds


class WholeBatchesParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nobody joins a batch before all of it is done, as in the days before continuous batching."""

    max_num_seqs: Annotated[int, msgspec.Meta(ge=1, le=2**20, description="requests in a batch")] = 8


cdef class WholeBatches(Scheduler):
    """Static batches, with KV blocks for prompt and declared output from the beginning: nobody is preempted."""

    Parameters = WholeBatchesParameters

    def __init__(self, parameters, context):
        self.max_running = parameters.max_num_seqs              # these three the engine relies on
        self.longest_prompt = context.max_model_len - 1
        self.waiting = WaitingQueue(context.requests, context.demands, FIRST_COME)
        self.grouping = False                                   # simple first: each sequence is an entry of its own

    @classmethod
    def memory(cls, parameters, deployment, max_model_len):     # prompts are computed whole, all at once
        return MemoryNeeds(parameters.max_num_seqs * max_model_len, parameters.max_num_seqs)

    cdef int64_t most_tokens(self, int32_t row) noexcept nogil:
        return min(<int64_t>self._requests[row].prompt_tokens + self._demands[row].max_tokens, self.longest_prompt + 1)

    cdef int8_t refusal(self, int32_t row) noexcept nogil:
        if blocks_for(self.most_tokens(row), self.kv.block_size) > self.kv.num_blocks:
            return DROPPED
        return Scheduler.refusal(self, row)

    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        cdef int32_t slot = self.first_running(), row, hits, text
        cdef Sequence* sequence
        batch.start_ns = now_ns                                 # 1. an empty batch
        batch.num_entries = batch.num_preempted = batch.num_members = batch.num_starved = 0
        memset(&batch.shape, 0, sizeof(BatchShape))
        if slot < 0:                                            # 2. who waits, once all are done
            while self.waiting.size > 0 and self.num_running() < self.max_running:
                row = self.waiting.top()
                text = self._requests[row].prompt_tokens + self._requests[row].output_tokens
                hits = self.kv.lookup(row, text)
                if not self.kv.allocate(self.top_slot(), row, hits, self.most_tokens(row), 0, 0, text):
                    break                                       # no blocks: nothing has changed
                self.waiting.pop()
                self.admit(row, hits, batch)
            slot = self.first_running()
        while slot >= 0:                                        # 3. tokens of each, 4. entries in running order
            sequence = self.sequence(slot)
            sequence.scheduled = sequence.num_tokens - sequence.num_computed
            if sequence.scheduled > 0:
                self.kv.cache(slot, sequence.num_tokens)
                self.add_entry(batch, slot)
            slot = self.next_running(slot)
        self.close(batch, -1)                                   # 5. sums
        return 0
