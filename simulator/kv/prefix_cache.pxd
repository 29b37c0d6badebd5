"""The prefix cache: index from the hash of a text to the block that holds it."""
from libc.stdint cimport int32_t, uint64_t
cimport cython

from simulator.kv.cache_log cimport CacheLog
from simulator.kv.content cimport Content, Cursor


cdef enum:
    PRIVATE = -1                # in no bucket: private text, which only its own request could hit, after a preemption
    TWIN = -2                   # in no bucket: a lookup finds another block with the same hash, or none any more


cdef struct Block:              # index 0 is the null block, head and tail of the free queue
    uint64_t hash               # of its text and all text before; 0: not cached
    int32_t prev, next          # neighbours in the free queue; valid while it is free
    int32_t references          # sequences that hold it; 0: free
    int32_t chain               # next block in its bucket, 0: none; or PRIVATE, TWIN; valid while it is cached
    int32_t twin_prev           # ring of blocks with the same hash, in order of insertion, the first in the bucket;
    int32_t twin_next           # valid while it is cached and not private. Where hashes are dropped: itself


@cython.final
cdef class PrefixCache:
    cdef Block* blocks          # borrowed from the pool: all its records
    cdef int32_t* _buckets      # low bits of the hash -> first block of a chain; 0: none
    cdef bint drops_hashes      # of several blocks with one hash the last is found, and none once one is reused
    cdef int32_t ahead          # tokens behind a block that its hash covers
    cdef CacheLog log           # hashes that enter and leave; None: there is no follower
    cdef uint64_t _mask         # number of buckets - 1; at least as many buckets as blocks

    # The pool's records are at `blocks` from now on; new ones are all zeros. -1 without memory for buckets.
    cdef int relocate(self, Block* blocks, int32_t num_records) except -1 nogil

    # The block that a lookup of this hash finds: the one inserted first that is still cached; 0: there is none.
    cdef inline int32_t find(self, uint64_t hash) noexcept nogil:
        cdef int32_t block = self._buckets[hash & self._mask]
        while block != 0 and self.blocks[block].hash != hash:
            block = self.blocks[block].chain
        return block

    # A block now holds the text with this hash; other blocks may hold it too.
    cdef void insert(self, int32_t block, uint64_t hash) noexcept nogil

    # Find the first `count` blocks of the shared text of request `row`, up to the first that is missing: fill in
    # `found`, [count]; return their number; `cursor` is then behind the last one found.
    cdef int32_t find_text(self, Content content, int32_t row, int32_t block_size, int32_t count, int32_t* found,
                           Cursor* cursor) except -1 nogil

    # blocks[begin .. end - 1] now hold blocks begin .. end - 1 of that text; `cursor` is at `begin`, moves to `end`.
    cdef int insert_text(self, Content content, int32_t row, int32_t block_size, const int32_t* blocks, int32_t begin,
                         int32_t end, Cursor* cursor) except -1 nogil

    # A cached block, private or not, is about to be reused.
    cdef inline void remove(self, int32_t block) noexcept nogil:
        if self.blocks[block].chain != PRIVATE:
            if self.drops_hashes:
                self._drop(self.blocks[block].hash)
            else:
                self._unlist(block)
        self.blocks[block].hash = 0

    cdef void _replace(self, int32_t block, int32_t found) noexcept nogil
    cdef void _drop(self, uint64_t hash) noexcept nogil
    cdef void _unlist(self, int32_t block) noexcept nogil
