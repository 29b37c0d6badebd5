"""KV blocks with records only for blocks that a lookup may find: the decisions of PagedKV.

A scheduler's decisions depend on the number of free blocks and on the hits of a lookup, never on which block is which.
So a block needs a record only from when text that others may share makes it findable, and blocks in a row share one
(see runs.pxd) unless each is followed by itself. All other blocks are counted:
blocks that hold nothing; blocks of private text while their request holds them; and free blocks of private text, as
whole stretches (see stretches.pxd). Use PagedKV where block tables are needed.

The free queue, from the front: first blocks that hold nothing, freed or never used, which are alike and so only a
number (`free_blocks` less the size of the queue behind them); then blocks that can still be found, least recently freed
first. In vLLM 0.10 freed blocks without a hash are in that queue too, without an owner.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.kv.base cimport KVCache, blocks_beyond
from simulator.kv.content cimport Content, Cursor
from simulator.kv.members cimport Members
from simulator.kv.runs cimport Chain, Runs
from simulator.kv.stretches cimport Stretches


cdef struct Holding:            # of a slot
    int32_t* shared             # [room] elements of its hashed blocks of shared text: min(num_hashed, num_public).
                                # With runs these blocks are those of `chain` instead
    int32_t room                # entries that fit before it must grow
    int32_t num_hashed          # leading blocks with a hash: found cached, or cached by this sequence; of a member that
                                # is past its shared text: when it joined
    int32_t num_public          # leading blocks of text that others may share
    int32_t row                 # the request
    int32_t pieces              # private blocks that were found, the last first, linked by `sibling`; 0: none
    int32_t num_found           # leading blocks that were found
    Cursor cursor               # behind the last hashed block of shared text; without runs
    Chain chain
    int64_t reader              # of blocks read_begin .. read_end - 1 when the request leaves; 0 .. 0: no reader
    int32_t read_begin, read_end


cdef class SparseKV(KVCache):
    cdef Stretches _cached      # free blocks that hold something
    cdef Runs _runs             # blocks of shared text; None: nothing was cached yet, or _lists_each
    cdef Content _content
    cdef Holding* _holdings     # [slot]
    cdef Members _members       # bulk-decode cohort: members that may still fill blocks of shared text
    cdef int32_t _full_member   # slot: the next member with a block that this iteration fills, to be cached; -1: none
    cdef int8_t _append_unhashed  # vLLM 0.10: blocks without a hash go to the back of the free queue too
    cdef int8_t _drops_last_hit  # as EAGLE has it: the last block found is computed again
    cdef int8_t _lists_each     # each block of shared text is an element of its own, for followers and tiers
    cdef int32_t* _hits         # [_room_hits] blocks of shared text found by the last lookup: `_public_hits`
    cdef int32_t _room_hits
    cdef int32_t _public_hits
    cdef int32_t _free_hits     # all blocks found that are in the free queue
    cdef Cursor _hits_cursor    # behind the public ones

    # Free blocks, hits among them, that `allocate` takes for a request, to be inlined there; -1: there is no room.
    @cython.final
    cdef inline int32_t _taken(self, int32_t slot, int32_t hits, int64_t slots, int64_t full_tokens,
                               int32_t watermark) noexcept nogil:
        cdef int32_t have = self._owned[slot] + hits, revived = self._free_hits if hits > 0 else 0
        cdef int32_t need = blocks_beyond(have, slots, self.block_size)
        if max(blocks_beyond(have, full_tokens, self.block_size), need) + revived + watermark > self.free_blocks:
            return -1
        return need + revived

    # Leading blocks of a request's text that are listed in the prefix cache, not as private text.
    cdef int32_t _shared_blocks(self, int32_t row) noexcept nogil

    # `cache`, to be inlined in `allocate`: most visits of a sequence fill no block.
    @cython.final
    cdef int _cache(self, Holding* holding, int64_t known_tokens) except -1 nogil

    # `lookup` among the first `most` blocks of a text.
    cdef int32_t _find(self, int32_t row, int32_t most) except -1 nogil
    cdef int _lookup_public(self, int32_t row, int32_t num_public) except -1 nogil
    cdef int _open_runs(self) except -1 nogil
    cdef int _begin(self, Holding* holding, int32_t row, int32_t hits) except -1 nogil
    cdef int _hold_hits(self, Holding* holding) except -1 nogil
    cdef int32_t _let_go(self, Holding* holding, int32_t shared) except -1 nogil
    cdef int _publish(self, Holding* holding, int32_t full) except -1 nogil
    cdef int _free_private(self, Holding* holding, bint returns) except -1 nogil
    cdef int _append_nobodys(self, Holding* holding) except -1 nogil
