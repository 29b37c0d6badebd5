"""KV blocks with an identity: free queue, owners, block tables, prefix cache."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.block_pool cimport BlockPool, Table
from simulator.kv.members cimport Members
from simulator.kv.prefix_cache cimport PrefixCache
from simulator.kv.returning cimport ReturningBlocks


@cython.final
cdef class PagedKV(BlockPool):
    cdef PrefixCache _prefixes  # of public text
    cdef ReturningBlocks _returning     # private blocks of preempted requests
    cdef bint _append_unhashed  # vLLM 0.10: blocks without a hash go to the back of the free queue too
    cdef int32_t _shared_blocks(self, int32_t row) noexcept nogil
    cdef bint _drops_last_hit   # as EAGLE has it: the last block found is computed again
    cdef Members _members       # bulk-decode cohort by the phase in which a member needs a block
    cdef int32_t _due_member    # slot: the next member that step_before gives a block; -1: none
    cdef int32_t _full_member   # slot: the next member with a block that this iteration fills, to be cached; -1: none
    cdef readonly int64_t evictions             # cached blocks that were reused

    # `lookup` among the first `most` blocks of a text.
    cdef int32_t _find(self, int32_t row, int32_t most) except -1 nogil

    # Append `count` blocks from the front of the free queue to a table that holds `owned`; needs a call of `_prepare`.
    cdef int _take(self, Table* table, int32_t owned, int32_t count) except -1 nogil
