"""What policies share that serve the running list in order of admission, within a budget of tokens.

All that runs is scheduled at once where nobody could be refused or passed over, else the policy visits the sequences
one by one.
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
    cdef bint _notes_turns              # see _note_turn

    # The tokens that a running sequence gets if the budget lasts; of a prompt `threshold` at most. The policy's to
    # answer; a member of the group at hand gets one.
    cdef int64_t _wanted(self, const Sequence* sequence, int64_t threshold) noexcept nogil

    # Of these, so many at once. Asked where the KV cache aligns chunks of prompts.
    cdef int64_t _cut(self, int32_t slot, int64_t tokens) noexcept nogil

    # How many tokens a running sequence needs room for that then has so many in KV.
    @cython.final
    cdef inline int64_t _slots(self, int64_t tokens) noexcept nogil:
        return min(tokens + self._lookahead, self._max_model_len)

    # A sequence that is no member was scheduled: what the policy notes of it, if it does (`_notes_turns`).
    cdef void _note_turn(self, Sequence* sequence) noexcept nogil

    # Schedule all that runs in O(prefilling), or return 0 with nothing scheduled. As visiting one by one would,
    # provided there are blocks for all and the budget lasts to the last member.
    cdef int _continue_at_once(self, Batch* batch, int64_t threshold) except -1 nogil

    # May one whose KV comes from elsewhere have blocks for so many tokens, of which `hits` blocks were found? The rest
    # of all texts that are being computed or loaded keeps room, and the watermark; or the tier's own rule holds.
    cdef bint _has_room(self, int32_t row, int32_t slot, int32_t hits, int64_t tokens, int32_t watermark) noexcept nogil
    cdef bint _leaves_reserve(self, int32_t row, int32_t hits) noexcept nogil
    cdef int64_t _retractable(self) noexcept nogil
    cdef int64_t _longest(self, int32_t row) noexcept nogil
    cdef int64_t _unfinished_blocks(self) noexcept nogil
    cdef int64_t _missing_blocks(self, int32_t slot) noexcept nogil

    # Put what was scheduled one by one into the batch; other members starve.
    cdef int _gather(self, Batch* batch) except -1 nogil
