"""`sarathi`: chunks of prompts fill up batches of decodes, as in Vidur's Sarathi.

Each decoding request has a token in each batch; the rest of `chunk_size` goes to prompts under way, then to new ones.
The blocks of a whole prompt are taken with its first chunk. Source: the behaviour of Vidur's scheduler "sarathi",
microsoft/vidur at 7d47513, replica_scheduler/sarathi_replica_scheduler.py; Agrawal et al., arXiv 2403.02310.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.iteration cimport Batch
from simulator.scheduling.base cimport Sequence
from simulator.scheduling.vidur cimport VidurScheduler

from typing import Annotated

from msgspec import Meta

from simulator.scheduling.base import SchedulerFacts
from simulator.scheduling.vidur import WatermarkParameters


class SarathiParameters(WatermarkParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of Vidur's scheduler "sarathi", under its names."""

    chunk_size: Annotated[int, Meta(ge=1, le=2**31 - 1, extra={"unit": "tokens"}, description=(
        "tokens in a batch; decodes count, but are never postponed"))] = 512


@cython.final
cdef class Sarathi(VidurScheduler):
    """Decodes and chunks of prompts in one batch; see `SarathiParameters`."""

    Parameters = SarathiParameters

    cdef int64_t _left                  # tokens of chunk_size left for prompts in this batch; may be negative
    cdef int32_t _visited               # sequences of _at_hand visited

    def __init__(self, parameters, context):
        self.share(parameters.batch_size_cap, parameters.watermark_blocks_fraction, 1, context)
        self._token_budget = parameters.chunk_size

    @staticmethod
    def facts(parameters):
        """See Scheduler."""
        return SchedulerFacts(parameters.batch_size_cap, max(parameters.chunk_size, parameters.batch_size_cap),
                              takes_threads=True, heeds_arrivals=True, takes_arrived=True)

    cdef bint keeps_turns(self) noexcept nogil:
        return True                     # decodes go first, in every batch

    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        self.begin_batch(batch, now_ns)
        if self._go_on_at_once(batch):
            self._admit_prompts(batch, True)
        else:
            self.gather_at_hand()
            self._decode(batch)
            self._compute_prompts(batch)
            self._admit_prompts(batch, False)
            self.fill(batch)
        if self._returned != NULL:
            self._put_back()
        self.close(batch, -1)
        return 0

    cdef bint _go_on_at_once(self, Batch* batch) except -1 nogil:
        """Schedule all members, then prompts under way; return False, with nothing done, if sequences must be
        visited."""
        cdef int32_t i, slot
        cdef Sequence* sequence
        for i in range(self._num_prefilling):
            sequence = &self._sequences[self._prefilling[i]]
            if sequence.is_decoding or sequence.scheduled == 0 or (
                    self.kv.lacking(self._prefilling[i], sequence.num_tokens) > 0):
                return False
        if not self.decode_all(batch):
            return False
        self._left = self._token_budget - self.num_members
        for i in range(self._num_prefilling):
            slot = self._prefilling[i]
            if self._take_chunk(slot):
                self.add_entry(batch, slot)
        return True

    cdef bint _take_chunk(self, int32_t slot) except -1 nogil:
        """Schedule the next chunk of a prompt under way; return False if no tokens or no blocks are left for it."""
        cdef Sequence* sequence = &self._sequences[slot]
        cdef int64_t tokens = max(min(<int64_t>sequence.num_tokens - sequence.num_computed, self._left), <int64_t>0)
        sequence.scheduled = 0
        if tokens == 0 or not self.kv.allocate(
                slot, sequence.row, 0, sequence.num_tokens, 0, 0, sequence.num_computed + tokens):
            return False
        sequence.scheduled = <int32_t>tokens
        self._left -= tokens
        self._size += 1
        return True

    cdef int _decode(self, Batch* batch) except -1 nogil:
        cdef int32_t i = 0, slot
        cdef int64_t tokens
        self._left = self._token_budget
        while i < self._count and self._size < self._micro_batch:
            slot = self._at_hand[i]
            if self._sequences[slot].is_decoding:
                tokens = 1 if self._sequences[slot].is_member else (
                    self._sequences[slot].num_tokens - self._sequences[slot].num_computed)
                if self.continue_at(batch, i, tokens, self.computed(slot) + tokens):
                    self._left -= tokens
            i += 1
        self._visited = i
        return 0

    cdef int _compute_prompts(self, Batch* batch) except -1 nogil:
        cdef int32_t i, slot
        for i in range(min(self._visited, self._count)):
            slot = self._at_hand[i]
            if not self._sequences[slot].is_decoding and not self._take_chunk(slot) and self._left > 0:
                self.restart(batch, slot)               # its KV came from elsewhere, and it has no room
                self._at_hand[i] = -1
        return 0

    cdef int _admit_prompts(self, Batch* batch, bint adds_entries) except -1 nogil:
        while self._left > 0 and self.has_place() and self.admit_head(batch, self._left, self.head_text()):
            self._left -= self._sequences[self._running.tail].scheduled
            if adds_entries:
                self.add_entry(batch, self._running.tail)
        return 0

    cdef void _put_back(self) noexcept nogil:
        """Put idle sequences at hand back by arrival, before sequences in batches that return later."""
        cdef int32_t i, count = 0
        for i in range(self._count):
            if self._at_hand[i] >= 0 and self._sequences[self._at_hand[i]].scheduled == 0:
                self._at_hand[count] = self._at_hand[i]
                count += 1
        self._count = count
        self.sort_by_arrival()
        for i in range(count):
            self._stamp += 1
            self._returned[self._sequences[self._at_hand[i]].row] = self._stamp
