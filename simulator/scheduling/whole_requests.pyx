"""What schedulers share that give a request the blocks of its longest text when they admit it: nobody restarts."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.domain.iteration cimport Batch
from simulator.domain.request cimport DROPPED
from simulator.kv.base cimport blocks_for
from simulator.scheduling.base cimport Sequence
from simulator.scheduling.vidur cimport VidurScheduler

from typing import Annotated, Literal

from msgspec import Meta

from simulator.kv.reserving import ReservingKV
from simulator.scheduling.base import MemoryNeeds, SchedulerFacts
from simulator.scheduling.vidur import VidurParameters


class WholeRequestsParameters(VidurParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of these, under Vidur's names where it has them."""

    batch_size_cap: Annotated[int, Meta(ge=1, le=2**20, extra={"unit": "requests"}, description="in a batch")] = 128
    reservation: Annotated[Literal["max_model_len", "max_tokens"], Meta(description=(
        "how long a text is taken to become: as the longest, which is Vidur's way, or by the output that its client "
        "allows"))] = "max_model_len"


cdef class WholeRequests(VidurScheduler):
    """Base of schedulers of whole requests; see whole_requests.pxd."""

    Parameters = WholeRequestsParameters

    def __init__(self, parameters, context):
        cdef int64_t most = parameters.batch_size_cap
        if parameters.reservation == "max_model_len":       # Vidur divides the memory by stages, then by longest texts
            most = min(most, context.kv.num_blocks // blocks_for(
                context.max_model_len, context.kv.block_size) // context.num_stages)
        self.share(max(most, <int64_t>1) * context.num_stages, 0.0, 0, context)
        self._reserves_declared = parameters.reservation == "max_tokens"
        self.grouping = self.grouping and isinstance(context.kv, ReservingKV)

    @classmethod
    def memory(cls, parameters, deployment, max_model_len):
        """See Scheduler."""
        return MemoryNeeds(parameters.batch_size_cap * max_model_len, parameters.batch_size_cap)

    @staticmethod
    def facts(parameters):
        """See Scheduler."""
        return SchedulerFacts(takes_threads=True, heeds_arrivals=True, preempts=False)

    @staticmethod
    def faults(parameters, engine):
        """See Scheduler."""
        length, blocks, size = engine.max_model_len, engine.num_gpu_blocks, engine.block_size
        if parameters.reservation != "max_model_len" or length is None or blocks is None or length <= blocks * size:
            return ()
        return [("reservation", f'"max_model_len" = {length} tokens is more than {blocks} blocks of {size} hold: '
                                'expected more blocks, a smaller max_model_len, or "max_tokens"')]

    @staticmethod
    def kv_cache(parameters, plan):
        """See Scheduler."""
        if plan.with_identity:
            return VidurScheduler.kv_cache(parameters, plan)
        return ReservingKV(plan.num_blocks, plan.block_size)

    cdef int64_t longest_text(self, int32_t row) noexcept nogil:
        cdef int64_t text = <int64_t>self._requests[row].prompt_tokens + self._demands[row].max_tokens
        return min(text, self._max_model_len) if self._reserves_declared else self._max_model_len

    cdef int8_t refusal(self, int32_t row) noexcept nogil:
        if blocks_for(self.longest_text(row), self.kv.block_size) > self.kv.num_blocks:
            return DROPPED
        return VidurScheduler.refusal(self, row)

    cdef int64_t longest_surely_taken(self) noexcept nogil:
        return -1 if self._reserves_declared else VidurScheduler.longest_surely_taken(self)

    cdef bint keeps_turns(self) noexcept nogil:
        return True

    cdef bint go_on_at_once(self, Batch* batch) except -1 nogil:
        return self.num_members == self._running.size and self.decode_all(batch)

    cdef bint go_on_at(self, Batch* batch, int32_t i) except -1 nogil:
        cdef int32_t slot = self._at_hand[i]
        cdef const Sequence* sequence = &self._sequences[slot]
        cdef int64_t tokens = 1 if sequence.is_member else sequence.num_tokens - sequence.num_computed
        return self.continue_at(batch, i, tokens, self.longest_text(sequence.row))

    cdef int admit_whole(self, Batch* batch, bint adds_entries) except -1 nogil:
        while self.has_place() and self.admit_head(
                batch, self.head_text(), self.longest_text(self.waiting.top())):
            if adds_entries:
                self.add_entry(batch, self._running.tail)
        return 0
