"""The KV cache of a replica, in blocks: what a scheduler may ask of it.

Three kinds: `CountingKV` knows how many blocks each sequence owns, a `BlockPool` (`PagedKV`, `BlisKV`) which ones, what
they hold and who else holds them, `SparseKV` that of the blocks that others may find. They answer alike wherever what
they do not know cannot be observed (see counting.pyx, sparse.pxd). In these a sequence has one block table, in a
`HybridKV` one for each group of layers, and gives blocks back while it runs.

A sequence is known by its slot, a small index its scheduler gives out. Sequences that decode one token an iteration may
join the *group*: their blocks are then taken by `step_*` in bulk, paid for only when a block is due. A member's *phase*
says when: in iterations whose number is congruent to it modulo block_size. Of several groups one is at hand, which all
functions concern. Members that stride (scheduling/strides) do not join here: the blocks that they will need are
`expect`ed, by phases of another number.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.fences cimport Fences


# Blocks that hold so many tokens.
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
    cdef readonly Fences fences             # blocks that a tier still reads; None: nobody put up any
    cdef readonly bint finds_outputs        # blocks that decoding fills enter the prefix cache where others find them
    cdef readonly bint is_hybrid            # this is a HybridKV: what is said of such below is asked for
    cdef readonly int32_t chunk_alignment   # of such: prompts are computed in chunks that end at multiples of so many
                                            # tokens; 0: anywhere
    cdef int32_t unknown_tokens             # of a member: computed before an iteration, but still in flight then
    cdef int32_t ahead_tokens               # of a member: drafts and slots reserved behind its next token
    cdef int32_t num_phases                 # iteration i is of phase i % num_phases; block_size unless members stride

    cdef int32_t* _owned                    # [slot] blocks owned; of a member: now (BlockPool), else at joining
    cdef int32_t* _due                      # [phase] members that need a block in iterations of this phase; of a hybrid
                                            # cache blocks that members take, less those that they give back
    cdef int32_t* _due_of_all               # [group][phase] where `_due` points into
    cdef int32_t* _given                    # [phase] hybrid: blocks that members give back; else NULL
    cdef readonly int32_t slack             # blocks that members leave free who run ahead: hybrid: what they may give
                                            # back in an iteration, at most; else 0, unless a scheduler sets it
    cdef readonly int32_t num_shared        # hybrid: blocks that several sequences hold and may give back: which of
                                            # them frees one is not foreseen; else 0

    # Blocks that a sequence owns, as `_owned` says; what members of a group need in iterations of a phase.
    @cython.final
    cdef inline int32_t owned(self, int32_t slot) noexcept nogil:
        return self._owned[slot]

    @cython.final
    cdef inline int32_t due(self, int32_t phase) noexcept nogil:
        return self._due[phase]

    # The same, whoever is served first: what members give back may come too late for others.
    @cython.final
    cdef inline int32_t due_at_most(self, int32_t phase) noexcept nogil:
        return self._due[phase] + self._given[phase] if self._given != NULL else self._due[phase]

    @cython.final
    cdef inline int32_t due_of(self, int32_t group, int32_t phase) noexcept nogil:
        return self._due_of_all[<size_t>group * self.block_size + phase]

    # Have `count` groups, all empty, the first at hand; have another one at hand.
    cdef int reserve_groups(self, int32_t count) except -1
    cdef void turn_to(self, int32_t group) noexcept nogil

    # Members stride: have so many phases. In one of them more blocks are needed; or none any more.
    cdef int recur_after(self, int32_t num_phases) except -1

    @cython.final
    cdef inline void expect(self, int32_t phase, int32_t blocks) noexcept nogil:
        self._due[phase] += blocks

    @cython.final
    cdef inline void forget_due(self, int32_t phase) noexcept nogil:
        self._due[phase] = 0

    # May the sequence stride? Its blocks from now on are nobody's but its own.
    cdef bint may_stride(self, int32_t slot) noexcept nogil

    # Make room for slots 0 .. num_slots - 1.
    cdef int reserve_slots(self, int32_t num_slots) except -1 nogil

    # The longest cached prefix of request `row`, which holds no blocks and whose text is `num_tokens` long, in pieces
    # of `hit_tokens`; the last token is never served from the cache. The blocks found are remembered until the next
    # call.
    cdef int32_t lookup(self, int32_t row, int32_t num_tokens) except -1 nogil

    # Of the blocks that the last lookup found, those in the free queue.
    cdef int32_t free_hits(self) noexcept nogil

    # An upper bound of what `lookup` can find, without the search.
    cdef int32_t most_hits(self, int32_t row, int32_t num_tokens) noexcept nogil

    # Give `slot` room for its first `slots` tokens: 1, or 0 if there is none, and nothing changed.
    # `hits`: all that the last lookup found, for a sequence that owns none yet; else 0. `full_tokens`: so long a
    # text must fit as a whole; 0: no such demand. `watermark`: blocks that must stay free. `known_tokens`: tokens whose
    # text is known once this is computed; blocks full of these enter the prefix cache.
    cdef int allocate(self, int32_t slot, int32_t row, int32_t hits, int64_t slots, int64_t full_tokens,
                      int32_t watermark, int64_t known_tokens) except -1 nogil

    # Blocks that a text of so many tokens takes, at least; more than there are: it can never be computed.
    cdef int32_t whole_blocks(self, int64_t num_tokens) noexcept nogil

    # Hybrid: of a sequence that is about to be given blocks, so many tokens are computed and no iteration in flight is
    # at work on them: what no later token needs is given up. Of one that owns nothing yet: so many tokens arrive from
    # elsewhere, and blocks for these, with those that are found, come with the next `allocate`.
    cdef int slide(self, int32_t slot, int64_t settled_tokens) except -1 nogil

    # Hybrid: a batch is about to be formed; what it puts into the prefix cache of states is not there before it ends.
    cdef void begin_batch(self) noexcept nogil

    # Hybrid: it is formed. Blocks are given up that were held since they are copied in it.
    cdef int end_batch(self) except -1 nogil

    # Hybrid: tokens of the prompt of a sequence, -1: of the one looked up last, that others have too, where not all is
    # there that a hit would need; 0: there is no such place.
    cdef int64_t junction(self, int32_t slot) noexcept nogil

    # Blocks that `allocate` would have to take for a sequence that has some, so that it has room for `slots` tokens.
    @cython.final
    cdef inline int64_t lacking(self, int32_t slot, int64_t slots) noexcept nogil:
        if self.is_hybrid:
            return self._missing(slot, slots)
        return max(blocks_for(slots, self.block_size) - self._owned[slot], 0)

    cdef int64_t _missing(self, int32_t slot, int64_t slots) noexcept nogil

    # The same for a request that was just looked up, with the blocks found that nobody holds.
    cdef int64_t needed(self, int32_t slot, int32_t hits, int64_t slots) noexcept nogil

    # Hybrid: blocks of a group into which a sequence that began so reads what arrives from elsewhere.
    cdef int64_t arriving_blocks(self, int32_t slot, int32_t group) noexcept nogil

    # At least so many of the blocks taken next hold nothing that is found in the prefix cache.
    cdef int32_t blank_blocks(self) noexcept nogil

    # Put the full blocks of the first `known_tokens` tokens of a sequence into the prefix cache.
    cdef int cache(self, int32_t slot, int64_t known_tokens) except -1 nogil

    # Free everything `slot` owns. `returns`: its request will be back and may find some of it.
    cdef int release(self, int32_t slot, bint returns) except -1 nogil

    # The same for a sequence that will not be back and was done a while ago, when a batch was at work on it.
    cdef int release_late(self, int32_t slot) except -1 nogil

    # A request leaves that waits: it may hold blocks all the same.
    cdef int gives_up(self, int32_t row) except -1 nogil

    # A reader (see kv/fences.pxd) still reads blocks begin .. end - 1 of what `slot` owns when that is freed: whoever
    # gets one of them is noted, as a new block or found in the prefix cache. Is the block held by anybody?
    cdef int fence(self, int32_t slot, int32_t begin, int32_t end, int64_t reader) except -1 nogil
    cdef bint is_held(self, int32_t block) noexcept nogil

    # The same of one that begins to run with the blocks that it has had for a while: whoever reads one is noted.
    cdef int announce_all(self, int32_t slot) except -1 nogil

    # The same of a member that was visited by itself, with so many tokens in KV, for the block that its turn has taken.
    # Of who is no member the tier is told, and asks.
    cdef int announce_turn(self, int32_t slot, int64_t computed) except -1 nogil

    # Hybrid: a sequence has `computed` tokens in KV. May it become a member: does it take and give back blocks at
    # regular times from now on? And with how many tokens in KV no more?
    cdef bint may_join(self, int32_t slot, int64_t computed) noexcept nogil
    cdef int64_t regular_until(self, int32_t slot) noexcept nogil

    # A sequence that has exactly the blocks its tokens in KV need becomes a member. `order` sorts members as their
    # scheduler does.
    cdef int join(self, int32_t slot, int32_t phase, int64_t order) except -1 nogil

    # A member is one no more; `settle` then says how far it came.
    cdef void leave(self, int32_t slot, int32_t phase) noexcept nogil

    # A member, whose blocks were taken in bulk, has those of its first `num_computed` tokens and of `ahead_tokens`
    # more. Told before anything else is asked of it (release, allocate).
    cdef void settle(self, int32_t slot, int64_t num_computed) noexcept nogil

    # Blocks that a sequence owns; of a member, between iterations, with `num_computed` tokens in KV. For check().
    cdef int32_t owned_blocks(self, int32_t slot, bint is_member, int64_t num_computed) noexcept nogil

    # Give members their blocks for an iteration of this phase: begin, then serve those with order < `order`, in order;
    # again with larger orders. The caller has checked that free_blocks >= _due[phase].
    cdef void step_begin(self, int32_t phase) noexcept nogil
    cdef int step_before(self, int64_t order) except -1 nogil

    # The same for all members, `count` iterations in a row, the first of this phase.
    cdef int step_run(self, int32_t phase, int32_t count) except -1 nogil

    # The same for one iteration of a group; which one is at hand means nothing until the next turn_to.
    cdef int step_of(self, int32_t group, int32_t phase) except -1 nogil


# Blocks that must be added to `have` so that they hold so many tokens; most visits need none, and divide nothing.
cdef inline int32_t blocks_beyond(int32_t have, int64_t num_tokens, int32_t block_size) noexcept nogil:
    return blocks_for(num_tokens, block_size) - have if num_tokens > <int64_t>have * block_size else 0
