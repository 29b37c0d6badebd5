"""KV blocks with an identity: free queue, owners, block tables, prefix cache."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.base cimport KVCache
from simulator.kv.content cimport Content, Cursor
from simulator.kv.prefix_cache cimport Block, PrefixCache
from simulator.kv.returning cimport ReturningBlocks


cdef struct Table:              # the block table of one slot
    int32_t* blocks             # [room] the first _owned[slot] count
    int32_t room                # entries that fit before it must grow
    int32_t num_hashed          # leading blocks with a hash: found cached, or cached by this sequence
    int32_t num_public          # leading blocks of text that others may share
    int32_t row                 # the request
    Cursor cursor               # behind the last hashed public block
    int64_t order               # of a member: its place in the bucket of its phase
    int32_t before, after       # of a member: neighbours in that bucket, slots; -1: none


@cython.final
cdef class PagedKV(KVCache):
    cdef Block* _blocks         # [num_blocks + 1] 0 is the null block
    cdef Table* _tables         # [slot] of its sequence
    cdef PrefixCache _prefixes  # of public text
    cdef ReturningBlocks _returning     # private blocks of preempted requests
    cdef Content _content
    cdef bint _caching          # enable_prefix_caching
    cdef bint _append_unhashed  # vLLM 0.10: blocks without a hash go to the back of the free queue too
    cdef int32_t* _hits         # [_room_hits] blocks found by the last lookup
    cdef int32_t _room_hits
    cdef int32_t _free_hits     # of these, blocks in the free queue
    cdef Cursor _hits_cursor    # behind the public ones
    cdef int32_t* _bucket_head  # [phase] slot of the first member that needs a block in iterations of it; -1: none
    cdef int32_t* _bucket_tail  # [phase] and of the last
    cdef int32_t _due_member    # slot: the next that step_before gives a block; -1: none
    cdef int32_t _full_member   # slot: the next whose last block this iteration fills, to be cached; -1: none
    cdef readonly int64_t evictions             # cached blocks that were reused
    cdef object _evicted        # list of their indices for the debug face; None: not kept

    # Give a table room for `room` blocks, and as many again. -1 without memory, and nothing changed.
    cdef int _grow_table(self, Table* table, int32_t room) except -1 nogil
    cdef int _grow_hits(self, int32_t room) except -1 nogil

    # Go on from block `found`, to block `most` at the latest, with what this request left behind before a preemption.
    cdef int32_t _lookup_private(self, int32_t row, int32_t found, int32_t most) noexcept nogil

    # Append `count` blocks from the front of the free queue to a table that holds `owned` and has room for them.
    cdef int _take(self, Table* table, int32_t owned, int32_t count) except -1 nogil
    cdef int _note_eviction(self, int32_t block) except -1 nogil

    # The free queue: take a block out, put one in; before block 0 is at the end.
    cdef void _unlink(self, int32_t block) noexcept nogil
    cdef void _link_before(self, int32_t block, int32_t following) noexcept nogil
