"""KV blocks as BLIS keeps them: prompts found whole, blocks cached as they fill up, entries dropped by hash."""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.kv.block_pool cimport BlockPool, Table
from simulator.kv.cache_log cimport CacheLog


@cython.final
cdef class BlisKV(BlockPool):
    cdef int64_t* _skipped      # [slot] leading tokens of its text that no block of it holds: a prompt found whole
    cdef HashMap _cached        # hash -> the block that was the last to be cached under it
    cdef CacheLog _log          # of the hashes that come and go; None: nobody follows them

    # Let `slot`, which owns nothing, begin behind the first `num_tokens` tokens of its text without a block of them.
    cdef void skip(self, int32_t slot, int32_t row, int64_t num_tokens) noexcept nogil

    # Append `count` blocks from the front of the free list to a table that holds `owned`; `_prepare` came before.
    cdef int _take(self, Table* table, int32_t owned, int32_t count) except -1 nogil
    cdef void _drop(self, uint64_t hash) noexcept nogil     # nothing is found under it any more
