"""The set of replicas that hold each block of text, by the block's hash.

Most texts are in one replica alone, which the map names itself: with thousands of replicas a set takes kilobytes.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset
cimport cython

from simulator.core.hash_map cimport HashMap


@cython.final
cdef class HolderSets:
    cdef readonly int32_t num_replicas
    cdef readonly int32_t num_words     # 64-bit words in a set
    cdef HashMap _holder_of             # hash -> the only replica that holds the block; else num_replicas + set
    cdef uint64_t* _words               # [set x num_words] bit r: replica r holds the block
    cdef int32_t* _free                 # [_num_free] sets of no hash, a stack
    cdef int32_t _num_free
    cdef int32_t _num_sets              # sets for which there is memory
    cdef uint64_t* _alive               # [word] scratch of match

    # Number of blocks held by at least one replica.
    cdef inline int64_t size(self) noexcept nogil:
        return self._holder_of.size

    # A replica now holds a block, or no longer holds it; no effect if that is recorded already.
    cdef int add(self, uint64_t hash, int32_t replica) except -1 nogil
    cdef void remove(self, uint64_t hash, int32_t replica) noexcept nogil

    # Replicas that hold a block, bit r of words: replica r, [num_words]; NULL: none. Valid until the next call that
    # changes anything, or uses this `scratch`, [num_words].
    cdef inline const uint64_t* find(self, uint64_t hash, uint64_t* scratch) noexcept nogil:
        cdef int32_t found = self._holder_of.get(hash)
        if found >= self.num_replicas:
            return &self._words[<int64_t>(found - self.num_replicas) * self.num_words]
        if found < 0:
            return NULL
        memset(scratch, 0, self.num_words * sizeof(uint64_t))
        scratch[found // 64] = <uint64_t>1 << (found % 64)
        return scratch

    # How many leading blocks of `hashes` without a gap each replica holds: [num_replicas].
    cdef int match(self, const uint64_t* hashes, int32_t num_blocks, int32_t* matched) noexcept nogil

    # Write the replicas that hold a block to `found`, [num_replicas], in order, and return their number.
    cdef int32_t list_holders(self, uint64_t hash, int32_t* found) noexcept nogil

    # The prompt's block `first` is held by `replica` alone; the replicas in _alive hold all blocks before it.
    cdef int _match_alone(self, const uint64_t* hashes, int32_t num_blocks, int32_t first, int32_t replica,
                          int32_t* matched) noexcept nogil
    cdef bint _holds(self, uint64_t hash, int32_t replica) noexcept nogil

    cdef int _grow(self) except -1 nogil

    # Raise RuntimeError if hashes and sets are not paired, or a set is empty or has strangers.
    cpdef int check(self) except -1
