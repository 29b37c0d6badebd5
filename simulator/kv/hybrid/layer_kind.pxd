"""A kind of layers: tokens that they still need, blocks that enter the prefix cache, and the rule of a hit.

Layers of one kind may be split into several groups, each with its own block table: the tables of one sequence then have
the same shape, and a lookup finds a block of its text only if all groups have it.
"""
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t
cimport cython

from simulator.kv.content cimport Content, Cursor
from simulator.kv.prefix_cache cimport PrefixCache


cdef struct Table:              # the block table of one sequence in one group
    int32_t* blocks             # [room] the first `size` count; 0: null, no block of the pool
    int32_t room                # entries that fit before it must grow
    int32_t num_written         # of a kind that `is_counted`: entries from here on are not in `blocks`
    int32_t size
    int32_t begin               # leading entries that are null and stay so
    int32_t last                # where only the newest state is kept: the one before it; -1: none, or it is gone
    int32_t copied              # entry that is copied before it is written into, since lookups find it; -1: none
    int32_t passed              # of the first group of a kind: the last element of blocks that a window passed in
                                # visits, see BlockStore.release_passed; 0: none
    bint copy_is_found          # later lookups find the copy; else the sequence goes on in the copy
    int64_t checkpoint          # tokens of the text that the state covers which the last turn wrote inside its chunk,
                                # in the entry before the newest; 0: it wrote none
    bint has_run                # states: the sequence has been computed with this table, so that its last `drafts`
                                # entries are states of drafts


cdef struct Run:                # of blocks of a text
    int32_t begin, end


cdef struct Ends:               # places of a text, in tokens, at which a hit is likely to end; 0: none
    int64_t prompt              # the last multiple of KVCache.hit_tokens before the last token of the prompt
    int64_t junction            # where a shared prefix ends of which not every group had all that a hit needs
    int64_t longer              # with `dropped` tokens, where the hit of a longer text ends; else 0


# A lookup of one text in the prefix cache: block by block, in all groups of a kind.
@cython.final
cdef class Search:
    cdef PrefixCache prefixes
    cdef Content content
    cdef int32_t num_groups
    cdef int32_t grain          # tokens of the blocks over which hashes are chained: divides all block sizes
    cdef int32_t ahead          # tokens behind a block that its hash covers
    cdef uint64_t* salts        # [num_groups]
    cdef int32_t last_block     # entries of `prefixes` behind it are further hashes of a block, see NamedStore
    cdef int32_t** blocks       # [num_groups][_room] those found
    cdef int32_t* sizes         # [num_groups] leading ones that count; 0 among them: null
    cdef int64_t reach          # leading tokens of the text of which anything can be there
    cdef int32_t row
    cdef uint64_t* _hashes      # [_num_hashes] of the chain, as far as computed
    cdef int32_t _num_hashes
    cdef int32_t _room
    cdef int32_t _num_first     # of the chain: blocks of the first segment of the prompt that were taken as a whole
    cdef int32_t _num_public    # of the chain: text that others may share
    cdef Cursor _cursor         # behind the last hash of shared text

    # Leading tokens of a request's text with hashes that other requests may share.
    cdef int64_t public_tokens(self, int32_t row) noexcept nogil

    # Begin with the text of a request; at most `num_tokens` tokens can be found.
    cdef int begin(self, int32_t row, int64_t num_tokens) except -1 nogil

    # Is block `index` there in all groups of a kind? They are then noted.
    cdef inline bint has(self, LayerKind kind, int32_t index) noexcept nogil:
        return self.has_until(kind, index, (<int64_t>index + 1) * kind.block_size)

    # The same of its beginning, up to the first `end` tokens of the text.
    cdef bint has_until(self, LayerKind kind, int32_t index, int64_t end) noexcept nogil

    # Let the hit of a kind have `size` blocks; the first `begin` ones are null.
    cdef void close(self, LayerKind kind, int32_t begin, int32_t size) noexcept nogil

    # Move a cursor behind the first `num_tokens` tokens of the text, which others may share.
    cdef void cursor_at(self, int64_t num_tokens, Cursor* cursor) noexcept nogil

    cdef int _begin_hashes(self) except -1 nogil
    cdef uint64_t _hash_at(self, int64_t end) noexcept nogil


cdef class LayerKind:
    cdef readonly int32_t block_size
    cdef int32_t unit           # hits are multiples of that many tokens
    cdef int32_t num_groups
    cdef int32_t* groups        # [num_groups] numbers of its groups, among all
    cdef readonly bint is_full  # a hit is the run of blocks from the beginning
    cdef bint is_local          # tokens are outdated at some time
    cdef bint is_counted        # `blocks` has entries only as far as text is shared, see Table.num_written. All entries
                                # behind are null before `begin`, and nameless from there on
    cdef bint in_a_row          # it is counted, and no group of another kind is between its groups. A visit of a member
                                # changes the table of the first group alone
    cdef readonly bint keeps_newest     # only the newest block of a text has a place
    cdef readonly bint drops    # the last block of a hit is computed again, since a drafter has written into it. `cut`
                                # of kinds: 0: not so; 1: so; 2: and the blocks of a hit that ends a block before a
                                # junction are kept, since a text that differs from there on lacks the block behind
    cdef readonly int32_t drafts        # states behind the newest, one for each draft that a step verifies
    cdef int32_t checkpoint     # tokens between places inside a chunk where a state can be written; 0: nowhere
    cdef int32_t most_blocks    # most blocks of a text, in the check that it fits whole
    cdef readonly bint takes_blocks     # one every block_size tokens; else one for life
    cdef int64_t frees_at       # see `steady_until`; -1: no block is ever given back

    # Leading tokens that no query from token `tokens` on needs any more.
    cdef int64_t outdated(self, int64_t tokens) noexcept nogil

    # A sequence gains a token in each turn; its last turn began with `settled` tokens (see KVCache.slide) and ended
    # with `computed`. INT64_MAX: from now on it gives a block back in each turn that begins with `frees_at` settled
    # tokens, modulo block_size. Else it gives none back before the turn that begins with the result; 0: a block is
    # overdue.
    cdef int64_t steady_until(self, const Table* table, int64_t computed, int64_t settled) noexcept nogil

    # The first run of blocks, at `begin` or behind it, that enter the prefix cache.
    cdef Run kept(self, int32_t begin, const Ends* ends) noexcept nogil

    # Tokens of the longest hit of at most `most` tokens; its blocks are then in `search`. `drop`: leave the last block.
    cdef int64_t find(self, Search search, int64_t most, bint drop) noexcept nogil

    # Blocks that must be taken so that a table of `have` entries has those of `end` blocks of text, with states inside
    # the chunk. A table that `has_run` has states of drafts among its entries; negative: more than it needs.
    cdef inline int32_t missing(self, int32_t have, int32_t end, int32_t checkpoints, bint has_run) noexcept nogil:
        cdef int32_t count = end + self.drafts - have
        if not self.keeps_newest:
            return max(count, 0)
        return min(count, 1 + checkpoints + (0 if has_run else self.drafts))


# The blocks of a text that a hit can end with: tails of `length` blocks.
cdef struct Tails:
    int32_t length              # blocks of a tail
    int32_t segment             # blocks from the end of a tail to the end of the next; 0: there are no regular tails
    bint at_ends                # before given ends, too
    bint is_all                 # all blocks are in a tail
    int32_t shift               # 1: a tail has the block behind its end, too, which a hit leaves; else 0
    bint earlier                # junctions end a block earlier as well


# The tails of a kind with hits of `length` blocks. `retention`: tokens from one tail to the next, besides tails at
# given ends; 0: only at given ends; -1: wherever a hit may end, `unit` tokens apart. `drops`: of the kind.
cdef Tails tails_of(int32_t length, int32_t block_size, int32_t unit, int64_t retention, bint drops) noexcept nogil

cdef Run next_tail(const Tails* tails, int32_t block_size, int32_t begin, const Ends* ends) noexcept nogil


# The hash of a block, of `grain` tokens, of private text, well mixed.
cdef uint64_t own_hash(int32_t row, int32_t index) noexcept nogil


# The key in the prefix cache of a block with this hash in a group with this salt; never 0.
cdef inline uint64_t salted(uint64_t hash, uint64_t salt) noexcept nogil:
    cdef uint64_t key = hash
    if salt == 0:
        return key
    key = (key ^ salt) * <uint64_t>0xBF58476D1CE4E5B9
    key ^= key >> 29
    return key if key != 0 else 1
