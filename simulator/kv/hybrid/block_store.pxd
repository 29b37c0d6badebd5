"""The pool that several groups of layers share: its blocks, the queue of free ones, and their content.

Block tables are arrays of int32_t: an entry is the name of a block, or one of the values below. A `NamedStore` gives
every block a name, for block tables; a `CountedStore` names only blocks of text that other requests may find, and
counts all others. The number of free blocks is kept by the owner.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.kv.prefix_cache cimport Block, PrefixCache
from simulator.kv.stretches cimport Stretches


cdef enum:
    NO_BLOCK = 0                # null: the text there is not needed any more, or never was
    NAMELESS = -1               # a block without a name
    NOBODYS = -2                # a block in the prefix cache that no request will look up


cdef class BlockStore:
    cdef readonly PrefixCache prefixes
    cdef readonly bint names_all        # every block has a name
    cdef bint goes_on                   # the next release continues the one before
    cdef int32_t num_left_alone         # blocks of the last release that have one holder left

    # Take the first `count` blocks of the queue, in order; `num_left` stay in it. -1 without memory.
    cdef int take(self, int32_t* table, int32_t count, int32_t num_left) except -1 nogil

    # Is a block free? hold(): add a holder to a block, which may have been free; return the number of its holders.
    @cython.final
    cdef inline bint is_free(self, int32_t block) noexcept nogil:
        return self.prefixes.blocks[block].references == 0

    cdef int32_t hold(self, int32_t block) noexcept nogil

    # The same as `take`, for blocks without an entry in a table. CountedStore alone implements this and the next two.
    cdef void take_nameless(self, int32_t num_left) noexcept nogil

    # `count` blocks are released that no lookup will find, though they are in the prefix cache.
    cdef int release_nobodys(self, int32_t count) except -1 nogil

    # A block of private text is released in each of `count` groups, without a hash; see Stretches. CountedStore alone
    # implements this and the next three. before_passed(): the element passed before one of which blocks are left.
    cdef int32_t release_passed(self, int64_t name, int32_t count, int32_t before) except -1 nogil
    cdef int32_t num_passed(self, int32_t element, int64_t name) noexcept nogil
    cdef int32_t before_passed(self, int32_t element) noexcept nogil
    cdef int list_passed(self, int32_t element, uint64_t hash) except -1 nogil

    # A block holds the text with this hash, and no other: return its name from now on.
    cdef int32_t list_as(self, int32_t block, uint64_t hash) except -1 nogil

    # List a block under the hash of a text that ends inside it as well. NamedStore alone implements this and the next.
    cdef int also_list_as(self, int32_t block, uint64_t hash) except -1 nogil

    # Lookups that found a block find another one from now on, which was listed under no hash.
    cdef int move_hashes(self, int32_t block, int32_t other) except -1 nogil

    # Release entries end - 1 .. begin of a table, in this order, and make them null: return how many blocks are free
    # now. Blocks that hold nothing are the first to be reused, in this order, the others the last.
    cdef int32_t release(self, int32_t* table, int32_t begin, int32_t end) except -1 nogil

    # Of `num_free` free blocks, the number that are taken before any block that a lookup can find.
    cdef int32_t blank(self, int32_t num_free) noexcept nogil


@cython.final
cdef class NamedStore(BlockStore):
    cdef Block* _blocks         # [_num_records]; 0 is head and tail of the queue. Records behind _num_blocks are
                                # further hashes of blocks: `references` is the block, `next` its next record
    cdef int32_t _num_blocks
    cdef int32_t _num_records
    cdef int32_t _spare         # first record without a hash, others by `next`; 0: there is none
    cdef int32_t* _further      # [_num_blocks + 1] the first further hash of a block; NULL: no block ever had one
    cdef int32_t _front         # block before which blocks that hold nothing go, in the release under way
    cdef object _evicted        # list of the cached blocks that were reused, for the debug face; None: not kept
    cdef readonly int64_t evictions

    cdef void _link_before(self, int32_t block, int32_t following) noexcept nogil
    cdef void unlist(self, int32_t block) noexcept nogil        # let nothing be found in a block that has a hash
    cdef void _drop_further(self, int32_t block) noexcept nogil
    cdef int _add_spares(self) except -1 nogil
    cdef int _note_eviction(self, int32_t block) except -1 nogil


@cython.final
cdef class CountedStore(BlockStore):
    cdef Stretches _cached      # free blocks in the prefix cache, also those that no request will look up
