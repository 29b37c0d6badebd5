"""KV blocks as BLIS keeps them: prompts found whole, blocks cached as they fill up, entries dropped by hash."""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.kv.block_pool cimport BlockPool, Table
from simulator.kv.cache_log cimport CacheLog
from simulator.kv.content cimport Cursor
from simulator.kv.mirror cimport Mirror


cdef struct Kept:               # blocks of its prompt that a waiting request has claimed
    int32_t row                 # -1: not in use
    int32_t count
    int32_t* blocks             # [count]


@cython.final
cdef class BlisKV(BlockPool):
    cdef int64_t* _skipped      # [slot] leading tokens of its text that have no block: its prompt was found whole
    cdef int64_t* _reached      # [slot] with a mirror: leading tokens of the text that have been given room
    cdef Mirror _mirror     # copy in host memory of the blocks of running sequences; None: there is no mirror
    cdef Kept* _kept            # [_num_kept] with a mirror: blocks that waiting requests keep
    cdef int32_t _num_kept
    cdef HashMap _kept_by       # key_of(row) -> entry
    cdef int32_t* _own_hits     # [_room_own_hits] with a mirror: blocks found by the scheduler's lookup
    cdef int32_t _room_own_hits
    cdef HashMap _cached        # hash -> the block that was cached last under it
    cdef CacheLog _log          # hashes that enter and leave the prefix cache; None: it has no follower

    # Let `slot`, which owns nothing, begin behind the first `num_tokens` tokens of its text, without blocks for them.
    cdef int skip(self, int32_t slot, int32_t row, int64_t num_tokens) except -1 nogil

    # With a mirror: note that host memory has the blocks of a running sequence.
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

    # Append `count` blocks from the front of the free list to a table that holds `owned`; needs a call of `_prepare`.
    cdef int _take(self, Table* table, int32_t owned, int32_t count) except -1 nogil
    cdef void _drop(self, uint64_t hash) noexcept nogil     # remove the hash from the prefix cache
