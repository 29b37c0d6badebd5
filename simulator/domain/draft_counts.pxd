"""Number of drafts that were verified, and number that were accepted."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.acceptance cimport Acceptance


@cython.final
cdef class DraftCounts:
    cdef readonly int32_t num_tokens    # drafts of a regular turn, the maximum of any turn
    cdef public int64_t num_draft_tokens        # verified
    cdef int64_t* steps                 # [num_tokens + 1] verify steps of which so many drafts were accepted

    # Count a verify step of `drafts` drafts that has ended.
    cdef inline void count(self, int32_t drafts, int32_t accepted) noexcept nogil:
        self.num_draft_tokens += drafts
        self.steps[accepted] += 1

    # Undo the count of a regular turn that does not reach its end.
    cdef inline void take_back(self, int32_t accepted) noexcept nogil:
        self.num_draft_tokens -= self.num_tokens
        self.steps[accepted] -= 1

    # Regular turns of a request have ended: its verify steps `first` .. `end` - 1.
    cdef void count_turns(self, Acceptance acceptance, int32_t row, int32_t first, int32_t end) noexcept nogil
