"""What the answers of members may still have: sums of it that cost nothing for each of them.

Of each at most MOST_RESERVED tokens count. As the group goes on by an iteration, that becomes one less for all whose
rest is shorter, and stays for those whose rest is longer: these are listed by the iteration from which on it is not.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.finish_heap cimport FinishHeap


cdef enum:
    MOST_RESERVED = 4096        # tokens of an answer that are expected, at most; SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION


cdef enum Place:                # of a slot
    NOWHERE = 0
    NEAR = 1                    # its rest counts in full
    FAR = 2                     # it is longer than what counts


cdef struct Debt:               # of a slot
    int64_t ends                # the iteration by which its answer would be as long as it may
    bint is_whole               # its rest is expected in full; of others the part that `Sglang` has learnt
    int8_t place                # Place


cdef struct Sum:                # of those of which the same is expected
    int64_t ends                # summed over those that are NEAR
    int64_t num_near
    int64_t num_far


@cython.final
cdef class Owed:
    cdef Debt* _debts           # [_num_slots]
    cdef int32_t _num_slots
    cdef FinishHeap _far        # slots that are FAR
    cdef Sum _part              # of those that are expected in part; of the others
    cdef Sum _whole

    # Make room for slots 0 .. num_slots - 1.
    cdef int reserve(self, int32_t num_slots) except -1 nogil

    # A slot that is not there owes until iteration `ends`, from this one on; a slot owes no more, if it did.
    cdef int put(self, int32_t slot, int64_t iteration, int64_t ends, bint is_whole) except -1 nogil
    cdef void drop(self, int32_t slot) noexcept nogil

    # Tokens at an iteration, which is never lower than one named before, of those expected in part; of the others.
    cdef int64_t in_part(self, int64_t iteration) noexcept nogil
    cdef int64_t in_full(self, int64_t iteration) noexcept nogil

    cdef Sum* _sum_of(self, int32_t slot) noexcept nogil
    cdef void _bring_near(self, int64_t iteration) noexcept nogil
