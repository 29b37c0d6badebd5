"""KV blocks as BLIS keeps them, with an identity only where somebody can observe it: the decisions of `BlisKV`.

What is reused decides what is found under its hash, whoever else holds that text. So, unlike vLLM's, reuse and caching
are done in the order of the running list, within an iteration too.

Private text is a number of blocks only while its request runs for the first time: nobody left any of it behind, so no
reuse can make it lose a hash. Where the request stops to run and may come back, its blocks get records and hashes like
those of shared text, and so do all those that it fills from then on.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.members cimport Members
from simulator.kv.sparse cimport Holding, SparseKV


@cython.final
cdef class SparseBlisKV(SparseKV):
    cdef Members _takers        # of the group: all of them, by the phase in which they need a block
    cdef int32_t _next_taker    # slot: the next that step_before gives a block; -1: none
    cdef int32_t _last_taker    # slot: the last in this iteration; of no meaning where there is none
    cdef int32_t _num_takers    # those still to come

    cdef int32_t _listed_blocks(self, int32_t row, int64_t num_tokens) noexcept nogil
    cdef int _list_private(self, Holding* holding) except -1 nogil
    cdef int _step_in_order(self, int64_t order) except -1 nogil
    cdef void _take(self, int32_t count) noexcept nogil
