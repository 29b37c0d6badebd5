"""What policies share that serve the running list in order of admission, within a budget of tokens.

All that runs is scheduled at once where nobody could be refused or passed over, else the policy visits the sequences
one by one.
"""
from libc.stdint cimport int64_t

from simulator.domain.iteration cimport Batch
from simulator.scheduling.base cimport Scheduler, Sequence


cdef class InOrder(Scheduler):
    cdef int64_t _token_budget          # tokens an iteration may schedule
    cdef int64_t _budget                # tokens left in the iteration being formed

    # The tokens that a running sequence gets if the budget lasts; of a prompt `threshold` at most. The policy's to
    # answer; a member of the group at hand gets one.
    cdef int64_t _wanted(self, const Sequence* sequence, int64_t threshold) noexcept nogil

    # Schedule all that runs in O(prefilling), or return 0 with nothing scheduled. As visiting one by one would,
    # provided there are blocks for all and the budget lasts to the last member.
    cdef int _continue_at_once(self, Batch* batch, int64_t threshold) except -1 nogil

    # Put what was scheduled one by one into the batch; other members starve.
    cdef int _gather(self, Batch* batch) except -1 nogil
