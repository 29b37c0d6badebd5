"""Blocks that preempted requests left behind and may find again.

They hold private text, which the prefix cache does not list.
"""
from libc.stdint cimport int32_t, uint64_t
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.kv.prefix_cache cimport Block


cdef struct LeftBlock:
    int32_t index               # place in the text, in blocks
    int32_t block               # of the pool; its hash shows whether it still holds that part


cdef struct Returning:          # the blocks that one request left behind
    int32_t row                 # the request; of a free entry: the next free one, -1: none
    int32_t count               # blocks noted
    int32_t room                # blocks that fit before it must grow
    LeftBlock* blocks           # in the order in which they were first cached


# A row mixed as HashMap wants its keys: times 2**64 / golden ratio (Knuth, TAOCP 3, 6.4), without the lowest bits,
# which mix least.
cdef inline uint64_t key_of(int32_t row) noexcept nogil:
    return <uint64_t>(row + 1) * <uint64_t>0x9E3779B97F4A7C15 >> 17


# The hash of block `index` of a request's private text; never 0, which means: not cached.
cdef inline uint64_t private_hash(int32_t row, int32_t index) noexcept nogil:
    return (<uint64_t>(row + 1) << 32) | <uint64_t>index


@cython.final
cdef class ReturningBlocks:
    cdef readonly int32_t size          # requests that left blocks
    cdef Returning* _entries            # [_room]
    cdef int32_t num_entries           # entries in use or free to be used again
    cdef int32_t _room                  # entries that fit before it must grow
    cdef int32_t _free                  # first free entry; -1: none
    cdef HashMap _entry_of              # row, well mixed -> entry

    # The blocks that `row` left behind; NULL if none. Valid until the next `keep`.
    cdef Returning* get(self, int32_t row) noexcept nogil

    # Go on from block `found`, to block `most` at the latest, with blocks that still hold their text: fill in `hits`,
    # [most]; return the end. Blocks that were evicted since are forgotten.
    cdef int32_t find(self, int32_t row, int32_t found, int32_t most, const Block* blocks,
                      int32_t* hits) noexcept nogil

    # Note blocks begin .. end - 1 of a table that is about to be given up.
    cdef int keep(self, int32_t row, const int32_t* table, int32_t begin, int32_t end) except -1 nogil

    # The request will not come back.
    cdef void drop(self, int32_t row) noexcept nogil

    # The blocks that this request left behind; an empty entry if none yet.
    cdef Returning* _entry(self, int32_t row) except NULL nogil
