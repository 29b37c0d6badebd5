"""Base of schedulers that reserve blocks for all of a request's text at admission.

If that is the longest possible text, no request restarts. If it is the predicted text, an answer may outgrow it: its
request then takes one block after the other, and if none is free the last ones at hand restart, as in Vidur's other
schedulers. Such a request is visited in every batch, and so are all others in it.
"""
from libc.stdint cimport INT64_MAX, int8_t

from simulator.domain.request cimport DROPPED
from simulator.kv.base cimport blocks_for
from simulator.scheduling.base cimport Sequence

from typing import Annotated, Literal

from msgspec import Meta

from simulator.kv.reserving import ReservingKV
from simulator.scheduling.base import MemoryNeeds, SchedulerFacts
from simulator.scheduling.vidur import VidurParameters

RESERVATIONS = ("max_model_len", "max_tokens", "expected_tokens")


class WholeRequestsParameters(VidurParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of schedulers of whole requests, under Vidur's names."""

    batch_size_cap: Annotated[int, Meta(ge=1, le=2**20, extra={"unit": "requests"}, description="batch limit")] = 128
    reservation: Annotated[Literal["max_model_len", "max_tokens", "expected_tokens"], Meta(description=(
        "text that blocks are reserved for: the longest, as in Vidur; by the client's max_tokens; or by the output "
        "that output_knowledge predicts: a request that outgrows it takes blocks one by one, and if none is free the "
        "last admitted restarts"))] = "max_model_len"
    allocator: Annotated[Literal["blocks", "buddy"], Meta(description=(
        "allocator of room for that text. blocks: as many as hold it; buddy: room for a power of two of tokens, as in "
        "the Orca of the paper on PagedAttention"))] = "blocks"

    @property
    def reads_expected_tokens(self):
        """Return whether predictions of output lengths matter."""
        return self.reservation == "expected_tokens"


cdef inline int64_t power_of_two(int64_t tokens) noexcept nogil:
    """Return the least power of two that is not below `tokens`."""
    cdef int64_t size = 1
    while size < tokens:
        size *= 2
    return size


cdef class WholeRequests(VidurScheduler):
    """Base of schedulers of whole requests; see whole_requests.pxd.

    A running request has a turn in each batch, and a waiting one joins as soon as it fits.
    """

    Parameters = WholeRequestsParameters

    def __init__(self, parameters, context):
        cdef int64_t most = parameters.batch_size_cap
        self._reservation = <Reservation><int>RESERVATIONS.index(parameters.reservation)
        self._is_buddy = parameters.allocator == "buddy"
        if self._reservation == MAX_MODEL_LEN:      # Vidur divides the memory by stages, then by longest texts
            most = min(most, context.kv.num_blocks // blocks_for(
                context.max_model_len, context.kv.block_size) // context.num_stages)
        self.share(max(most, <int64_t>1) * context.num_stages, 0.0, 0, context)
        self._max_new_tokens = INT64_MAX
        self.grouping = self.grouping and isinstance(context.kv, ReservingKV)

    @classmethod
    def memory(cls, parameters, deployment, max_model_len):
        """See Scheduler."""
        return MemoryNeeds(parameters.batch_size_cap * max_model_len, parameters.batch_size_cap)

    @staticmethod
    def facts(parameters):
        """See Scheduler."""
        return SchedulerFacts(takes_threads=True, heeds_arrivals=True, takes_arrived=True,
                              preempts=parameters.reservation == "expected_tokens")

    @staticmethod
    def faults(parameters, engine):
        """See Scheduler."""
        length, blocks, size = engine.max_model_len, engine.num_gpu_blocks, engine.block_size
        if parameters.reservation == "max_model_len" and parameters.allocator == "buddy":
            return [("allocator", '"buddy" rounds texts of different lengths; with reservation = "max_model_len" all '
                                  'have one: expected reservation = "max_tokens" or "expected_tokens", or "blocks"')]
        if parameters.reservation != "max_model_len" or length is None or blocks is None or length <= blocks * size:
            return ()
        return [("reservation", f'"max_model_len" = {length} tokens is more than {blocks} blocks of {size} hold: '
                                'expected more blocks, a smaller max_model_len, or "max_tokens"')]

    @staticmethod
    def kv_cache(parameters, plan):
        """See Scheduler."""
        is_observed = plan.with_identity and (plan.enable_prefix_caching or plan.with_tables)
        if is_observed or parameters.reservation == "expected_tokens":
            return VidurScheduler.kv_cache(parameters, plan)
        return ReservingKV(plan.num_blocks, plan.block_size)

    cdef int64_t reserved_text(self, int32_t row) noexcept nogil:
        cdef int64_t tokens = self._demands[row].max_tokens
        if self._reservation == MAX_MODEL_LEN:
            return self._max_model_len
        if self._reservation == EXPECTED_TOKENS and self._demands[row].expected_tokens >= 0:
            tokens = min(tokens, <int64_t>self._demands[row].expected_tokens)
        tokens = min(self._requests[row].prompt_tokens + tokens, self._max_model_len)
        return power_of_two(tokens) if self._is_buddy else tokens

    cdef int8_t refusal(self, int32_t row) noexcept nogil:
        if blocks_for(self.reserved_text(row), self.kv.block_size) > self.kv.num_blocks:
            return DROPPED
        return VidurScheduler.refusal(self, row)

    cdef int64_t longest_surely_taken(self) noexcept nogil:
        return VidurScheduler.longest_surely_taken(self) if self._reservation == MAX_MODEL_LEN else -1

    cdef bint keeps_turns(self) noexcept nogil:
        return True

    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        cdef int32_t i = 0
        self.begin_batch(batch, now_ns)
        if self.go_on_at_once(batch):
            self.admit_whole(batch, True)
        else:
            self.gather_at_hand()
            while i < self._count and self._size < self._micro_batch:
                self.go_on_at(batch, i)
                i += 1
            if batch.num_preempted == 0:
                self.admit_whole(batch, False)
            self.fill(batch)
        self.close(batch, -1)
        return 0

    cdef bint go_on_at_once(self, Batch* batch) except -1 nogil:
        return self.num_members == self._running.size and self.decode_all(batch)

    cdef bint go_on_at(self, Batch* batch, int32_t i) except -1 nogil:
        cdef int32_t slot = self._at_hand[i]
        cdef const Sequence* sequence = &self._sequences[slot]
        cdef int64_t tokens = 1 if sequence.is_member else sequence.num_tokens - sequence.num_computed
        return self.continue_at(batch, i, tokens, max(self.reserved_text(sequence.row), self.computed(slot) + tokens))

    cdef int admit_whole(self, Batch* batch, bint adds_entries) except -1 nogil:
        cdef int64_t left = self._max_new_tokens, text
        while self.has_place():
            text = self.head_text()
            if text > left and left < self._max_new_tokens and self.head_tokens() > left:
                break
            if not self.admit_head(batch, text, max(self.reserved_text(self.waiting.top()), text)):
                break
            left -= self._sequences[self._running.tail].scheduled
            if adds_entries:
                self.add_entry(batch, self._running.tail)
        return 0
