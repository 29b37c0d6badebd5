"""Who waits by tokens so far and length of text, for a policy that looks for the greatest gain; see texts.pyx."""
from libc.stdint cimport int32_t, int64_t

from simulator.scheduling.ranked cimport RequestRanking

cdef enum:
    MOST_SHELVES = 256


cdef struct Shelf:              # of those with about as many tokens so far
    int32_t least_tokens        # nobody has fewer
    int64_t earliest_ns         # nobody came before, nor after; of those that are here and have been lately
    int64_t latest_ns
    bint is_exact               # all have `least_tokens`
    bint is_alike               # and came at the same instant: they gain the same


cdef class Texts(RequestRanking):
    cdef Shelf[MOST_SHELVES] shelves    # [num_shelves] by tokens
    cdef void* heaps[MOST_SHELVES]      # IndexHeap, borrowed: of each shelf, the shortest text first
    cdef list _owned                    # the heaps
    cdef int32_t num_shelves            # with somebody there so far, and those before them
    cdef int64_t num_came               # so far
    cdef bint has_changed               # somebody came or left since it was set to False

    cdef int32_t _shelf_of(self, int32_t tokens) noexcept nogil
