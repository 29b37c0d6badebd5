"""Schedulers with members that may verify drafts, and then gain several tokens a turn."""
from libc.stdint cimport int32_t, int64_t

from simulator.scheduling.in_order cimport InOrder


cdef class MultiTokenScheduler(InOrder):
    cdef int64_t _most_computed         # see MultiTokenCohort
    cdef int32_t _most_running          # no sequence joins while more run: the group would dissolve often

    # Members verify `drafts` drafts a turn; called while the policy is built. `lookahead`: slots reserved behind the
    # drafts. `budget`: tokens of an iteration; 0: turns are never regular.
    cdef int verify(self, int32_t drafts, int32_t lookahead, int64_t max_model_len, int64_t budget) except -1

    # Remove all members; all run on, and are in `dissolved`.
    cdef int dissolve(self) except -1 nogil
