"""Sums of the tokens that members may still generate, at no cost per member.

Each member counts at most MOST_RESERVED tokens. With each iteration of the group, the sum falls by one for each member
with fewer tokens left, and not for the others, which are listed by the iteration at which they have MOST_RESERVED left.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.finish_heap cimport FinishHeap


cdef enum:
    MOST_RESERVED = 4096        # most tokens of an answer that count; SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION


cdef enum Place:                # of a slot: tokens left against MOST_RESERVED
    NOWHERE = 0
    NEAR = 1                    # its tokens left count in full
    FAR = 2                     # it has more tokens left than count


cdef struct Debt:               # of a slot
    int64_t ends                # iteration at which its answer has its full length
    bint is_whole               # tokens left are expected in full; for others, the part that `Sglang` has learnt
    int8_t place                # Place


cdef struct Sum:                # slots that are all expected in full, or all in part
    int64_t ends                # sum over NEAR slots
    int64_t num_near
    int64_t num_far


@cython.final
cdef class Owed:
    cdef Debt* _debts           # [_num_slots]
    cdef int32_t _num_slots
    cdef FinishHeap _far        # slots that are FAR
    cdef Sum _part              # slots expected in part; those expected in full
    cdef Sum _whole

    # Make room for slots 0 .. num_slots - 1.
    cdef int reserve(self, int32_t num_slots) except -1 nogil

    # Add a slot that is not there, at this iteration, with tokens left until iteration `ends`. Remove a slot, if there.
    cdef int put(self, int32_t slot, int64_t iteration, int64_t ends, bint is_whole) except -1 nogil
    cdef void drop(self, int32_t slot) noexcept nogil

    # Tokens left at an iteration, not lower than in earlier calls: of slots in part; of slots in full.
    cdef int64_t in_part(self, int64_t iteration) noexcept nogil
    cdef int64_t in_full(self, int64_t iteration) noexcept nogil

    cdef Sum* _sum_of(self, int32_t slot) noexcept nogil
    cdef void _bring_near(self, int64_t iteration) noexcept nogil
