"""`vllm_v0`: prompts first, then decodes, as in Vidur's first vLLM.

A batch is of whole prompts while any can be admitted, else of a token for each running request. Source: the behaviour
of Vidur's scheduler "vllm", microsoft/vidur at 7d47513, replica_scheduler/vllm_replica_scheduler.py.

The only difference concerns prompts recomputed after a restart: such a text may have outgrown max_tokens_in_batch, and
is then computed alone; Vidur would wait for ever.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.domain.iteration cimport Batch
from simulator.domain.request cimport REJECTED
from simulator.scheduling.vidur cimport VidurScheduler

from typing import Annotated

from msgspec import Meta

from simulator.scheduling.base import SchedulerFacts
from simulator.scheduling.vidur import ALONE, WatermarkParameters


class VllmV0Parameters(WatermarkParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of Vidur's scheduler "vllm", under its names."""

    max_tokens_in_batch: Annotated[int, Meta(ge=1, le=2**31 - 1, extra={"unit": "tokens"}, description=(
        "limit of a batch of prompts: their number by the longest one's tokens; a longer prompt is refused"))] = 4096


@cython.final
cdef class VllmV0(VidurScheduler):
    """Batches of prompts, then of decodes; see `VllmV0Parameters`."""

    Parameters = VllmV0Parameters

    cdef int64_t _max_tokens            # max_tokens_in_batch

    def __init__(self, parameters, context):
        self.share(parameters.batch_size_cap, parameters.watermark_blocks_fraction, 1, context)
        self._max_tokens = parameters.max_tokens_in_batch

    @staticmethod
    def facts(parameters):
        """See Scheduler."""
        return SchedulerFacts(parameters.batch_size_cap, max(parameters.max_tokens_in_batch, parameters.batch_size_cap),
                              takes_threads=True, heeds_arrivals=True, why_no_tier=ALONE)

    def limits(self):
        """See Scheduler."""
        own = self._max_tokens, f"are longer than max_tokens_in_batch = {self._max_tokens:,}"
        return own, *VidurScheduler.limits(self)

    cdef int8_t refusal(self, int32_t row) noexcept nogil:
        return REJECTED if self._requests[row].prompt_tokens > self._max_tokens else VidurScheduler.refusal(self, row)

    cdef int64_t longest_surely_taken(self) noexcept nogil:
        return min(self._max_tokens, VidurScheduler.longest_surely_taken(self))

    cdef bint keeps_turns(self) noexcept nogil:
        return False                    # arriving prompts take turns from decodes

    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        self.begin_batch(batch, now_ns)
        self._admit_prompts(batch)
        if self._size > 0:
            if self._returned == NULL:
                self.pass_over(batch)
        elif self.num_members < self._running.size or not self.decode_all(batch):
            self.gather_at_hand()
            self._decode_one_by_one(batch)
            self.fill(batch)
        self.close(batch, -1)
        return 0

    cdef int _admit_prompts(self, Batch* batch) except -1 nogil:
        cdef int64_t longest = 0, text
        while self.has_place():
            text = self.head_text()
            longest = max(longest, text)
            if (self._size + 1) * longest > self._max_tokens and not (
                    self._size == 0 and self._requests[self.waiting.top()].output_tokens > 0):
                break
            if not self.admit_head(batch, text, text):
                break
            self.add_entry(batch, self._running.tail)
        return 0

    cdef int _decode_one_by_one(self, Batch* batch) except -1 nogil:
        cdef int32_t i = 0, slot
        cdef int64_t tokens
        if self._returned != NULL:      # else they were admitted in order of arrival
            self.sort_by_arrival()
        while i < self._count and self._size < self._micro_batch:
            slot = self._at_hand[i]
            tokens = 1 if self._sequences[slot].is_member else (
                self._sequences[slot].num_tokens - self._sequences[slot].num_computed)
            self.continue_at(batch, i, tokens, self.computed(slot) + tokens)
            i += 1
        return 0
