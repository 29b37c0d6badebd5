"""KV blocks as BLIS keeps them: prompts found whole, blocks cached as they fill up, entries dropped by hash."""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.kv.block_pool cimport BlockPool, Table
from simulator.kv.cache_log cimport CacheLog
from simulator.kv.content cimport Cursor
from simulator.kv.mirror cimport Mirror


cdef struct Kept:               # by a request that waits: blocks of its prompt that it has claimed
    int32_t row                 # -1: not in use
    int32_t count
    int32_t* blocks             # [count]


@cython.final
cdef class BlisKV(BlockPool):
    cdef int64_t* _skipped      # [slot] leading tokens of its text that no block of it holds: a prompt found whole
    cdef int64_t* _reached      # [slot] with a mirror: tokens of its text for which it was given room
    cdef Mirror _mirror     # a copy in host memory of what those who run hold; None: there is none
    cdef Kept* _kept            # [_num_kept] with a mirror: what those keep who wait
    cdef int32_t _num_kept
    cdef HashMap _kept_by       # key_of(row) -> entry
    cdef int32_t* _own_hits     # [_room_own_hits] with a mirror: what the scheduler's lookup found
    cdef int32_t _room_own_hits
    cdef HashMap _cached        # hash -> the block that was the last to be cached under it
    cdef CacheLog _log          # of the hashes that come and go; None: nobody follows them

    # Let `slot`, which owns nothing, begin behind the first `num_tokens` tokens of its text without a block of them.
    cdef int skip(self, int32_t slot, int32_t row, int64_t num_tokens) except -1 nogil

    # With a mirror: the blocks of a running sequence are in it.
    cdef int mirror(self, int32_t slot) except -1 nogil

    cdef int _allocate(self, int32_t slot, int32_t row, int32_t hits, int64_t slots,
                       int64_t known_tokens) except -1 nogil
    cdef int _allocate_mirrored(self, int32_t slot, int32_t row, int32_t hits, int64_t slots,
                                int64_t known_tokens) except -1 nogil
    cdef int _use_reloaded(self, int32_t slot, int32_t row, int64_t begin, int64_t slots,
                           int64_t known_tokens) except -2 nogil
    cdef int _allocate_anyway(self, int32_t slot, int32_t row, int32_t hits, bint waits, int64_t slots,
                              int64_t known_tokens) except -1 nogil
    cdef int _allocate_moving(self, int32_t slot, int32_t row, int32_t hits, int64_t slots,
                              int64_t known_tokens) except -1 nogil
    cdef int _skip_to(self, int32_t slot, int32_t row, int64_t skipped) except -1 nogil
    cdef int32_t _bring_back(self) except -1 nogil
    cdef int _move_out(self) except -1 nogil
    cdef bint _take_kept(self, int32_t slot, int32_t row) except -1 nogil
    cdef int _keep(self, int32_t slot, int32_t row) except -1 nogil
    cdef void _free_all(self, const int32_t* blocks, int32_t count) noexcept nogil
    cdef int32_t _reload(self, int32_t slot, int32_t row, int32_t hits) except -1 nogil
    cdef Cursor _behind(self, int32_t slot, int32_t row, int32_t place, int32_t hits) noexcept nogil
    cdef bint _seek(self, int32_t row, int32_t* place, Cursor* cursor) noexcept nogil
    cdef bint _is_put_off(self, int32_t slot, int32_t row, int32_t hits) except -1 nogil
    cdef int _gather(self, int32_t row, int32_t place, Cursor cursor) except -1 nogil
    cdef int32_t _install(self, uint64_t hash) except -1 nogil
    cdef int _claim(self, int32_t slot, int32_t row, int32_t begin, int32_t end) except -1 nogil
    cdef int _chain(self, int32_t slot, int32_t row) except -1 nogil

    # Append `count` blocks from the front of the free list to a table that holds `owned`; `_prepare` came before.
    cdef int _take(self, Table* table, int32_t owned, int32_t count) except -1 nogil
    cdef void _drop(self, uint64_t hash) noexcept nogil     # nothing is found under it any more
