"""Chunks of a replica's KV kept in host memory, where layers are in groups: vLLM's OffloadingConnector."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.row_list cimport RowList
from simulator.kv.hybrid.tables cimport GroupTables
from simulator.kv.tiers.group_users cimport GroupUsers
from simulator.kv.tiers.layer_chunks cimport LayerChunks, Tails
from simulator.kv.tiers.offloading cimport OffloadingTier
from simulator.kv.tiers.users cimport Part


cdef struct Found:              # chunks of a text that are present in one group, from some chunk on
    int32_t count
    bint is_late                # one of the counted chunks is still being written


@cython.final
cdef class GroupOffloadingTier(OffloadingTier):
    cdef GroupUsers users               # _users
    cdef GroupTables _tables            # the KV cache
    cdef LayerChunks* _groups           # [_num_groups]
    cdef int32_t* _order                # [_num_groups] groups in the order in which they are searched: full ones first
    cdef int32_t* _cursors              # [_num_groups] of the user being closed: chunks visited
    cdef int32_t _num_groups
    cdef int32_t _num_full
    cdef int32_t _state_tokens          # of a chunk of states; 1: there are no states
    cdef bint _ends_short               # a hit leaves a token to compute
    cdef bint _needs_all_blocks
    cdef bint _is_dense                 # no retention interval: every possible end of a hit is kept
    cdef RowList _scheduled             # users that the step being formed computes, in order
    cdef int32_t _num_offering          # users of `_leaving` that have chunks to offer
    cdef RowList _blocks                # of the copy being planned
    cdef RowList _closing               # elements of the user being closed, and their uses
    cdef RowList _closing_uses

    cdef int _find(self, int32_t user, int32_t group, int32_t begin, int64_t end_tokens, Found* found) except -1 nogil
    cdef bint _is_there(self, int32_t user, int32_t group, int32_t chunk, bint* is_late) except -1 nogil
    cdef bint _is_read(self, int32_t user, int64_t local_tokens, int64_t tokens) noexcept nogil
    cdef int32_t _first_to_read(self, int32_t group, int32_t slot, int32_t end, bint are_listed) noexcept nogil
    cdef int64_t _tokens_to_store(self, int32_t row, int64_t tokens) noexcept nogil
    cdef int32_t _limit(self, int32_t user, int32_t group) noexcept nogil
    cdef int _store_states(self) except -1 nogil
    cdef int _store_states_of(self, int32_t user, int32_t first) except -1 nogil
    cdef int _offer(self, int32_t user, bint has_left) except -1 nogil
    cdef bint _may_offer(self, int32_t user) noexcept nogil
    cdef bint _looks_back(self, const LayerChunks* it, int32_t end, int32_t prompt) noexcept nogil
    cdef int _sort_out_kept(self, int32_t user, int32_t group, bint has_left) except -1 nogil
    cdef bint _lacks_block(self, const LayerChunks* it, const Tails* tails, const Part* part,
                           int32_t chunk) noexcept nogil
    cdef int _fence_new(self, int32_t user, int32_t copy, bint has_left) except -1 nogil
    cdef int _fence_all(self, int32_t user) except -1 nogil
    cdef int64_t _stored_tokens(self, int32_t copy) noexcept nogil
