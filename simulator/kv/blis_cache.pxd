"""KV blocks as BLIS keeps them: prompts found whole, blocks cached as they fill up, entries dropped by hash."""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.kv.base cimport KVCache
from simulator.kv.cache_log cimport CacheLog
from simulator.kv.content cimport Content, Cursor


cdef struct BlisBlock:          # index 0 is no block: head and tail of the free list
    uint64_t hash               # of the text it holds and all before it; 0: never cached since it was taken
    int32_t prev, next          # neighbours in the free list; valid while it is free
    int32_t references          # sequences that hold it; 0: free


cdef struct BlisTable:          # the block table of one slot
    int32_t* blocks             # [room] the first _owned[slot] count
    int32_t room                # entries that fit before it must grow
    int32_t num_hashed          # leading blocks with a hash: found cached, or cached by this sequence
    int64_t skipped             # leading tokens of its text that no block of it holds: a prompt that was found whole
    int32_t row                 # the request
    Cursor cursor               # behind the last hashed block


@cython.final
cdef class BlisKV(KVCache):
    cdef BlisBlock* _blocks     # [num_blocks + 1]
    cdef BlisTable* _tables     # [slot] of its sequence
    cdef HashMap _cached        # hash -> the block that was the last to be cached under it
    cdef CacheLog _log          # of the hashes that come and go; None: nobody follows them
    cdef Content _content
    cdef bint _caching          # enable_prefix_caching
    cdef int32_t* _hits         # [_room_hits] blocks found by the last lookup
    cdef int32_t _room_hits
    cdef int32_t _free_hits     # of these, free blocks
    cdef Cursor _hits_cursor    # behind them
    cdef object _evicted        # list of cached blocks that were reused, for the debug face; None: not kept

    # Let `slot`, which owns nothing, begin behind the first `num_tokens` tokens of its text without a block of them.
    cdef void skip(self, int32_t slot, int32_t row, int64_t num_tokens) noexcept nogil

    # A table has room for `room` blocks, and as many again. -1 without memory, and nothing changed.
    cdef int _grow_table(self, BlisTable* table, int32_t room) except -1 nogil
    cdef int _grow_hits(self, int32_t room) except -1 nogil

    # Append `count` blocks from the front of the free list to a table that holds `owned` and has room for them.
    cdef int _take(self, BlisTable* table, int32_t owned, int32_t count) except -1 nogil
    cdef int _note_eviction(self, int32_t block) except -1 nogil
    cdef void _drop(self, uint64_t hash) noexcept nogil     # nothing is found under it any more

    cdef void _unlink(self, int32_t block) noexcept nogil
    cdef void _append(self, int32_t block) noexcept nogil
