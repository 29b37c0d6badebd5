"""The KV cache of a replica, in blocks: its interface to a scheduler.

Three kinds: `CountingKV` has the number of blocks of each sequence; a `BlockPool` (`PagedKV`, `BlisKV`) the blocks
themselves, with content and owners; `SparseKV` has these for blocks that other requests may find. Where they differ in
detail no decision depends on it (see counting.pyx, sparse.pxd). With these a sequence has one block table; with a
`HybridKV` it has one for each group of layers, and frees blocks while it runs.

A sequence is identified by its slot, a small index from its scheduler. Sequences that decode one token per iteration
may join the *bulk-decode cohort*: `step_*` takes the blocks of all members at once, and costs time only when a block is
due. A member needs a block when the iteration's number is congruent to its *phase* modulo block_size. With several
cohorts (`groups` in names) `turn_to` selects the one that all functions use. Members of a multi-token cohort
(speculative decoding, scheduling/multi_token_cohort) do not join here: the blocks that they will need are added by
`expect`, with another number of phases.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.fences cimport Fences


# Number of blocks that hold `num_tokens` tokens.
cdef inline int32_t blocks_for(int64_t num_tokens, int32_t block_size) noexcept nogil:
    return <int32_t>((num_tokens + block_size - 1) // block_size)


cdef class KVCache:
    cdef readonly int32_t block_size        # tokens per block
    cdef readonly int32_t hit_tokens        # hits are counted in so many tokens: block_size; hybrid: fewer, where
                                            # hits may end inside blocks
    cdef readonly int32_t num_blocks        # usable blocks: the null block is not counted
    cdef readonly int32_t free_blocks       # blocks in the free queue; a free block may still hold a cached prefix
    cdef readonly int32_t num_slots         # capacity of the arrays by slot
    cdef readonly bint tracks_identity      # this is a BlockPool
    cdef readonly bint caches               # it has a prefix cache
    cdef readonly Fences fences             # blocks that a tier still reads; None: there are no fences
    cdef readonly int32_t hashes_ahead      # the hash of a block covers that many tokens behind it
    cdef readonly bint finds_outputs        # blocks that decoding fills enter the prefix cache, for other requests
    cdef readonly bint is_hybrid            # this is a HybridKV: functions marked `Hybrid` have an effect
    cdef readonly int32_t chunk_alignment   # Hybrid: prompts are computed in chunks that end at multiples of that many
                                            # tokens; 0: anywhere
    cdef int32_t unknown_tokens             # of a member: tokens in flight when an iteration begins
    cdef int32_t ahead_tokens               # of a member: drafts and slots reserved behind its next token
    cdef int32_t num_phases                 # iteration i is of phase i % num_phases; block_size without `recur_after`

    cdef int32_t* _owned                    # [slot] blocks owned; of a member: now (BlockPool), else when it joined
    cdef int32_t* _due                      # [phase] members that need a block in iterations of this phase; Hybrid:
                                            # blocks that members take, less blocks that they give back
    cdef int32_t* _due_of_all               # [cohort][phase] backs `_due`
    cdef int32_t* _given                    # [phase] Hybrid: blocks that members give back; else NULL
    cdef readonly int32_t slack             # blocks that stay free in a fast-forward of decode steps: Hybrid: the most
                                            # that members give back in an iteration; else 0, or set by a scheduler
    cdef readonly int32_t num_shared        # Hybrid: blocks that several sequences hold and may give back: the sequence
                                            # that frees one is not predicted; else 0

    # Blocks that a sequence owns, see `_owned`. Blocks that the selected cohort needs in iterations of a phase.
    @cython.final
    cdef inline int32_t owned(self, int32_t slot) noexcept nogil:
        return self._owned[slot]

    @cython.final
    cdef inline int32_t due(self, int32_t phase) noexcept nogil:
        return self._due[phase]

    # due() in any order of service: a block that one member gives back may be too late for another.
    @cython.final
    cdef inline int32_t due_at_most(self, int32_t phase) noexcept nogil:
        return self._due[phase] + self._given[phase] if self._given != NULL else self._due[phase]

    @cython.final
    cdef inline int32_t due_of(self, int32_t group, int32_t phase) noexcept nogil:
        return self._due_of_all[<size_t>group * self.block_size + phase]

    # Have `count` cohorts, all empty, and select the first; select another one.
    cdef int reserve_groups(self, int32_t count) except -1
    cdef void turn_to(self, int32_t group) noexcept nogil

    # Use `num_phases` phases. expect(): sequences of this phase need `blocks` more. forget_due(): they need none.
    cdef int recur_after(self, int32_t num_phases) except -1

    @cython.final
    cdef inline void expect(self, int32_t phase, int32_t blocks) noexcept nogil:
        self._due[phase] += blocks

    @cython.final
    cdef inline void forget_due(self, int32_t phase) noexcept nogil:
        self._due[phase] = 0

    # May the sequence join a multi-token cohort? Only if no other request can find blocks that it takes from now on.
    cdef bint may_join_multi_token(self, int32_t slot) noexcept nogil

    # Make room for slots 0 .. num_slots - 1.
    cdef int reserve_slots(self, int32_t num_slots) except -1 nogil

    # Length of the longest cached prefix of request `row`, in units of `hit_tokens`. The request holds no blocks, and
    # its text is `num_tokens` long. The last token is never served from the cache. The blocks found are remembered
    # until the next call.
    cdef int32_t lookup(self, int32_t row, int32_t num_tokens) except -1 nogil

    # Blocks of the last lookup that are in the free queue.
    cdef int32_t free_hits(self) noexcept nogil

    # An upper bound of `lookup`, without the search.
    cdef int32_t most_hits(self, int32_t row, int32_t num_tokens) noexcept nogil

    # Give `slot` room for its first `slots` tokens: 1, or 0 if there is none, and nothing changed.
    # `hits`: the result of the last lookup, for a sequence that owns no block yet; else 0. `full_tokens`: a text of
    # this length must fit as a whole; 0: not required. `watermark`: blocks that must stay free. `known_tokens`:
    # tokens that are known once this is computed; their full blocks enter the prefix cache.
    cdef int allocate(self, int32_t slot, int32_t row, int32_t hits, int64_t slots, int64_t full_tokens,
                      int32_t watermark, int64_t known_tokens) except -1 nogil

    # The fewest blocks that a text takes; if they exceed num_blocks, it can never be computed.
    cdef int32_t whole_blocks(self, int64_t num_tokens) noexcept nogil

    # Hybrid: call it before a sequence is given blocks. `settled_tokens` of its tokens were computed by iterations that
    # have ended: free blocks that no later token needs. If it owns nothing yet: that many tokens will be loaded from
    # elsewhere; the next `allocate` takes blocks for them, besides the hits.
    cdef int slide(self, int32_t slot, int64_t settled_tokens) except -1 nogil

    # Hybrid: a batch is about to be formed; states that it puts into the prefix cache cannot be used before it ends.
    cdef void begin_batch(self) noexcept nogil

    # Hybrid: the batch is formed. Release the blocks that were held because the batch copies them.
    cdef int end_batch(self) except -1 nogil

    # Hybrid: leading tokens of a prompt that a lookup found in some groups of layers, if more than in all groups
    # together; 0: there are no more. slot -1: for the last lookup; else for the lookup with which the sequence began.
    cdef int64_t junction(self, int32_t slot) noexcept nogil

    # Blocks that `allocate` would take for a sequence that owns some, so that it has room for `slots` tokens.
    @cython.final
    cdef inline int64_t lacking(self, int32_t slot, int64_t slots) noexcept nogil:
        if self.is_hybrid:
            return self._missing(slot, slots)
        return max(blocks_for(slots, self.block_size) - self._owned[slot], 0)

    cdef int64_t _missing(self, int32_t slot, int64_t slots) noexcept nogil

    # The same for a request that was just looked up, together with the hits in the free queue.
    cdef int64_t needed(self, int32_t slot, int32_t hits, int64_t slots) noexcept nogil

    # Hybrid: blocks of a group that receive KV from elsewhere, for a sequence that began with such KV.
    cdef int64_t arriving_blocks(self, int32_t slot, int32_t group) noexcept nogil

    # A lower bound of the blocks at the front of the free queue that hold no text of the prefix cache.
    cdef int32_t blank_blocks(self) noexcept nogil

    # Put the full blocks of the first `known_tokens` tokens of a sequence into the prefix cache.
    cdef int cache(self, int32_t slot, int64_t known_tokens) except -1 nogil

    # Free all blocks of `slot`. `returns`: its request will be back and may find some blocks.
    cdef int release(self, int32_t slot, bint returns) except -1 nogil

    # The same for a sequence that will not be back, which ended while a batch in flight still computed it.
    cdef int release_late(self, int32_t slot) except -1 nogil

    # A waiting request leaves; it may hold blocks.
    cdef int gives_up(self, int32_t row) except -1 nogil

    # A reader (see kv/fences.pxd) still reads blocks begin .. end - 1 of `slot` when they are freed: note each sequence
    # that gets one, as a new block or as a hit. Does any sequence hold the block?
    cdef int fence(self, int32_t slot, int32_t begin, int32_t end, int64_t reader) except -1 nogil
    cdef bint is_held(self, int32_t block) noexcept nogil

    # A sequence begins to run with blocks that it already holds: note the readers of each.
    cdef int announce_all(self, int32_t slot) except -1 nogil

    # A member was scheduled by itself with `computed` tokens in KV: note the readers of the block that it took. For
    # sequences outside of the cohort the tier does so in KVTier.computes.
    cdef int announce_turn(self, int32_t slot, int64_t computed) except -1 nogil

    # Hybrid: a sequence has `computed` tokens in KV. Does it take and give back blocks at regular times from now on, so
    # that it may join the cohort? And with how many tokens in KV does that end?
    cdef bint may_join(self, int32_t slot, int64_t computed) noexcept nogil
    cdef int64_t regular_until(self, int32_t slot) noexcept nogil

    # Add a sequence, which has exactly the blocks for its tokens in KV, to the cohort; `order` sorts members as the
    # scheduler does.
    cdef int join(self, int32_t slot, int32_t phase, int64_t order) except -1 nogil

    # Remove a member from the cohort; the caller then calls `settle` with its tokens in KV.
    cdef void leave(self, int32_t slot, int32_t phase) noexcept nogil

    # Blocks of a member were taken in bulk: set them to those of its first `num_computed` tokens and of
    # `ahead_tokens` more. Call it before any other function for it (release, allocate).
    cdef void settle(self, int32_t slot, int64_t num_computed) noexcept nogil

    # Blocks that a sequence owns; of a member, between iterations, with `num_computed` tokens in KV. For check().
    cdef int32_t owned_blocks(self, int32_t slot, bint is_member, int64_t num_computed) noexcept nogil

    # Give members their blocks for an iteration of this phase: begin, then serve members with order < `order`, in
    # order; again with larger orders. The caller has checked that free_blocks >= _due[phase].
    cdef void step_begin(self, int32_t phase) noexcept nogil
    cdef int step_before(self, int64_t order) except -1 nogil

    # The same for all members, `count` iterations in a row, the first of this phase.
    cdef int step_run(self, int32_t phase, int32_t count) except -1 nogil

    # The same for one iteration of a cohort; the selected cohort is undefined until the next turn_to.
    cdef int step_of(self, int32_t group, int32_t phase) except -1 nogil


# Blocks to add to `have` blocks so that they hold `num_tokens` tokens; the common case, none, does not divide.
cdef inline int32_t blocks_beyond(int32_t have, int64_t num_tokens, int32_t block_size) noexcept nogil:
    return blocks_for(num_tokens, block_size) - have if num_tokens > <int64_t>have * block_size else 0
