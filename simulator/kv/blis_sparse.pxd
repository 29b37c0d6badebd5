"""KV blocks as BLIS keeps them, with the bookkeeping of `SparseKV`: the decisions of `BlisKV`.

Reusing a block removes its hash from the prefix cache, even if another block holds that text. So, unlike vLLM's, reuse
and caching are done in the order of the running list, within an iteration too.

Private text is a number of blocks only while its request runs for the first time: no earlier copy of it exists, so no
reuse can remove its hash. When the request stops running and may come back, its blocks get records and hashes like
those of shared text, and so do all blocks that it fills from then on.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.members cimport Members
from simulator.kv.sparse cimport Holding, SparseKV


@cython.final
cdef class SparseBlisKV(SparseKV):
    cdef Members _takers        # the whole bulk-decode cohort, by the phase in which a member needs a block
    cdef int32_t _next_taker    # slot: the next member that step_before gives a block; -1: none
    cdef int32_t _last_taker    # slot: the last member that needs a block in this iteration; meaningless without one
    cdef int32_t _num_takers    # members that still need a block in this iteration

    cdef int32_t _listed_blocks(self, int32_t row, int64_t num_tokens) noexcept nogil
    cdef int _list_private(self, Holding* holding) except -1 nogil
    cdef int _step_in_order(self, int64_t order) except -1 nogil
    cdef void _take(self, int32_t count) noexcept nogil
