"""Base of policies that serve the running list in order of admission, within a budget of tokens.

All running sequences are scheduled at once if none can be refused or passed over, else the policy visits them one by
one.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.iteration cimport Batch
from simulator.scheduling.base cimport Scheduler, Sequence


cdef class InOrder(Scheduler):
    cdef int64_t _token_budget          # tokens an iteration may schedule
    cdef int64_t _budget                # tokens left in the iteration being formed
    cdef int64_t _max_model_len         # longest text, in tokens
    cdef int32_t _lookahead             # slots reserved ahead of a running sequence
    cdef int32_t _draft_slots           # slots of a step with drafts, which KV from elsewhere leaves free; 0: no drafts
    cdef int32_t _draft_blocks          # their blocks in all groups of layers
    cdef bint _notes_turns              # _note_turn is called

    # The tokens that a running sequence gets if the budget lasts; of a prompt at most `threshold`. The policy overrides
    # it; a member of the active group gets one.
    cdef int64_t _needed_tokens(self, const Sequence* sequence, int64_t threshold) noexcept nogil

    # The part of `tokens` that a prompt computes at once. Called where the KV cache aligns chunks of prompts.
    cdef int64_t _cut(self, int32_t slot, int64_t tokens) noexcept nogil

    # The tokens to reserve blocks for, for a running sequence that will have `tokens` in KV.
    @cython.final
    cdef inline int64_t _slots(self, int64_t tokens) noexcept nogil:
        return min(tokens + self._lookahead, self._max_model_len)

    # Called when a sequence that is no member was scheduled, if `_notes_turns`.
    cdef void _note_turn(self, Sequence* sequence) noexcept nogil

    # Schedule all running sequences in O(prefilling), or return 0 with nothing scheduled. The result is that of
    # visiting them one by one, provided there are blocks for all and the budget lasts to the last member.
    cdef int _continue_at_once(self, Batch* batch, int64_t threshold) except -1 nogil

    # May a request have blocks for `tokens` of KV from elsewhere, if `hits` blocks of its text were found here? The
    # watermark and the rest of all texts being computed or loaded must keep room; or the tier's own rule decides.
    cdef bint _has_room(self, int32_t row, int32_t slot, int32_t hits, int64_t tokens, int32_t watermark) noexcept nogil
    cdef bint _leaves_reserve(self, int32_t row, int32_t hits) noexcept nogil
    cdef int64_t _retractable(self) noexcept nogil
    cdef int64_t _longest(self, int32_t row) noexcept nogil
    cdef int64_t _unfinished_blocks(self) noexcept nogil
    cdef int64_t _missing_blocks(self, int32_t slot) noexcept nogil

    # Add the sequences that were scheduled one by one to the batch; other members starve.
    cdef int _gather(self, Batch* batch) except -1 nogil
