"""KV blocks with an identity: the free queue, reference counts, block tables and the prefix cache of vLLM V1."""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.kv.base cimport KVCache
from simulator.kv.content cimport Content, Cursor
from simulator.kv.prefix_cache cimport Block, PrefixCache
from simulator.kv.returning cimport ReturningBlocks


cdef struct Table:              # the block table of one slot
    int32_t* blocks
    int32_t room                # entries that fit before it must grow
    int32_t num_hashed          # leading blocks that are in the prefix cache (or were, when this sequence put them there)
    int32_t num_public          # leading blocks of text that others may share
    int32_t row
    Cursor cursor               # behind the last hashed public block
    int64_t order               # of group members, below too
    int32_t before, after       # neighbours in the bucket of its phase, sorted by order; -1: none


@cython.final
cdef class PagedKV(KVCache):
    cdef Block* _blocks         # [num_blocks + 1]
    cdef Table* _tables         # [slot]
    cdef PrefixCache _prefixes  # of public text
    cdef ReturningBlocks _returning     # private blocks of preempted requests
    cdef Content _content
    cdef bint _caching          # enable_prefix_caching
    cdef bint _append_unhashed  # vLLM 0.10: blocks without a hash go to the back of the free queue too
    cdef int32_t* _hits         # blocks found by the last lookup
    cdef int32_t _room_hits
    cdef int32_t _free_hits     # of these, blocks in the free queue
    cdef Cursor _hits_cursor    # behind the public ones
    cdef int32_t* _bucket_head  # [phase] group members that need a block at that phase; -1: none
    cdef int32_t* _bucket_tail
    cdef int32_t _due_member, _full_member      # where step_before stands
    cdef readonly int64_t evictions             # cached blocks that were reused
    cdef object _evicted        # list of their indices, kept when not None (debug face)

    cdef int _grow_table(self, Table* table, int32_t room) except -1 nogil
    cdef int _note_eviction(self, int32_t block) except -1 nogil
    cdef int32_t _lookup_private(self, int32_t row, int32_t found, int32_t most) noexcept nogil
    cdef int _grow_hits(self, int32_t room) except -1 nogil
    cdef int _take(self, Table* table, int32_t owned, int32_t count) except -1 nogil
    cdef void _unlink(self, int32_t block) noexcept nogil
    cdef void _link_before(self, int32_t block, int32_t following) noexcept nogil
