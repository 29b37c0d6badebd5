"""The blocks of a replica, their free queue, and the block tables of its sequences.

Blocks have records only from when they are first needed: an idle replica has none, however large its KV cache. Blocks
that were never used are alike. They form one stretch of the free queue, in order of index: no lookup finds them, so no
block is taken from the middle of the stretch or put back there. The records may therefore end somewhere in that
stretch; the last record then represents all blocks behind it, too.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.base cimport KVCache
from simulator.kv.content cimport Content, Cursor
from simulator.kv.prefix_cache cimport Block


cdef struct Table:              # the block table of one slot
    int32_t* blocks             # [room] the first _owned[slot] count
    int32_t room                # entries that fit before it must grow
    int32_t num_hashed          # leading blocks with a hash: found cached, or cached by this sequence
    int32_t num_public          # leading blocks of text that others may share
    int32_t row                 # the request
    Cursor cursor               # behind the last hashed public block


cdef class BlockPool(KVCache):
    cdef Block* _blocks         # [_num_records]
    cdef int32_t _num_records   # 1 at first, the null block; num_blocks + 1 at most
    cdef int32_t _unused        # first block that was never used; without meaning once all blocks have records
    cdef Table* _tables         # [slot] block table of its sequence
    cdef Content _content
    cdef bint _caching          # enable_prefix_caching
    cdef int32_t* _hits         # [_room_hits] blocks found by the last lookup
    cdef int32_t _room_hits
    cdef int32_t _free_hits     # blocks of `_hits` that are in the free queue
    cdef Cursor _hits_cursor    # behind the last hit of shared text
    cdef object _evicted        # list of the cached blocks that were reused, for the debug face; None: not kept

    # Make room in a table for `total` blocks, and records, so that `count` blocks can be taken from the queue and one
    # record is left to represent the blocks without. -1 without memory, and nothing changed.
    @cython.final
    cdef inline int _prepare(self, Table* table, int32_t total, int32_t count) except -1 nogil:
        if total > table.room:
            self._grow_table(table, total)
        if self._num_records <= self.num_blocks and self._num_records - self._unused <= count:
            self._grow_records(count)
        return 0

    # `block` becomes the front of the queue, after blocks before it were taken.
    @cython.final
    cdef inline void _set_front(self, int32_t block) noexcept nogil:
        self._blocks[0].next = block
        self._blocks[block].prev = 0
        if block > self._unused:
            self._unused = block

    # Take a block out of the queue; put one in. Before block 0 is the end of the queue.
    @cython.final
    cdef inline void _unlink(self, int32_t block) noexcept nogil:
        cdef Block* it = &self._blocks[block]
        self._blocks[it.prev].next = it.next
        self._blocks[it.next].prev = it.prev

    @cython.final
    cdef inline void _link_before(self, int32_t block, int32_t following) noexcept nogil:
        cdef Block* it = &self._blocks[block]
        it.next = following
        it.prev = self._blocks[following].prev
        self._blocks[it.prev].next = block
        self._blocks[following].prev = block

    # The records have moved, and will be `num_records`: lookups by hash must still find them. -1 without memory.
    cdef int _relocate(self, int32_t num_records) except -1 nogil

    cdef int _grow_records(self, int32_t count) except -1 nogil
    cdef int _grow_table(self, Table* table, int32_t room) except -1 nogil
    cdef int _grow_hits(self, int32_t room) except -1 nogil     # to twice `room`, like _grow_table
    cdef int _note_eviction(self, int32_t block) except -1 nogil
