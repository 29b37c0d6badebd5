"""Where the KV cache of a replica's tokens lives, in blocks; what a scheduler may ask of it.

Two implementations: `CountingKV` knows how many blocks each sequence owns, `PagedKV` which ones, what they hold and who else holds
them. They answer alike wherever the identity of blocks cannot be observed (see counting.pyx).

A sequence is known by its slot, a small index its scheduler gives out. Sequences that decode one token an iteration may join the
*group*: their blocks are then taken by `step_*` in bulk, paid for only when a block is due.
"""
from libc.stdint cimport int8_t, int32_t, int64_t


cdef class KVCache:
    cdef readonly int32_t block_size        # tokens per block
    cdef readonly int32_t num_blocks        # usable blocks: the null block is not counted
    cdef readonly int32_t free_blocks       # blocks in the free queue; a free block may still hold a cached prefix
    cdef readonly int32_t num_slots         # capacity of the per-slot arrays
    cdef readonly bint tracks_identity      # PagedKV

    cdef int32_t* _owned                    # [slot] blocks owned; of group members, as of joining (CountingKV) or exact (PagedKV)
    cdef int32_t* _due                      # [phase] group members that need a block when iteration % block_size == phase

    # Make room for slots 0 .. num_slots - 1.
    cdef int reserve_slots(self, int32_t num_slots) except -1 nogil

    # Blocks of the longest cached prefix of request `row`, which holds no blocks and whose text is `num_tokens` long; the last token
    # is never served from the cache. The blocks found are remembered until the next call: `allocate` takes all of them, or none.
    cdef int32_t lookup(self, int32_t row, int32_t num_tokens) except -1 nogil

    # No lookup of this text can find more blocks than this.
    cdef int32_t most_hits(self, int32_t row, int32_t num_tokens) noexcept nogil

    # Give `slot` room for its first `slots` tokens, or change nothing. `hits`: blocks of the last lookup, for a sequence that owns
    # none yet. `full_tokens` > 0: the whole text of that many tokens must fit. `watermark`: blocks that must stay free.
    # `known_tokens`: tokens whose text is known once this is computed; full blocks of these enter the prefix cache.
    # Return 1, or 0 if there is no room.
    cdef int allocate(self, int32_t slot, int32_t row, int32_t hits, int64_t slots, int64_t full_tokens, int32_t watermark,
                      int64_t known_tokens) except -1 nogil

    # Put full blocks of the first `known_tokens` tokens of a sequence into the prefix cache.
    cdef int cache(self, int32_t slot, int64_t known_tokens) except -1 nogil

    # Free everything `slot` owns. `returns`: its request will be back and may find some of it.
    cdef int release(self, int32_t slot, bint returns) except -1 nogil

    # A sequence with `num_computed` tokens in KV and exactly the blocks these need joins the group; it needs its next block at
    # iterations == phase (mod block_size). `order` sorts members as their scheduler does.
    cdef int join(self, int32_t slot, int32_t phase, int64_t order) except -1 nogil

    cdef void leave(self, int32_t slot, int32_t phase) noexcept nogil

    # Bring what is known of a member up to date before anything else is asked of it (release, allocate): it has blocks for its first
    # `num_computed` tokens.
    cdef void settle(self, int32_t slot, int64_t num_computed) noexcept nogil

    # Give members their blocks for an iteration of this phase: begin, then every member with order < `order`, in order (again
    # with larger orders). The caller has checked that free_blocks >= due(phase).
    cdef void step_begin(self, int32_t phase) noexcept nogil
    cdef int step_before(self, int64_t order) except -1 nogil

    # The same for all members, `count` iterations in a row, the first of this phase.
    cdef int step_run(self, int32_t phase, int32_t count) except -1 nogil


cdef inline int32_t blocks_for(int64_t num_tokens, int32_t block_size) noexcept nogil:
    return <int32_t>((num_tokens + block_size - 1) // block_size)
