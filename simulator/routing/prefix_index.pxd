"""Which leading blocks of a prompt a router has sent to which replica: one LRU of block hashes per replica.

The blocks of a prompt that nobody else can have (private text) are one entry with a count: they can be hit only if the
same request is sent again, and then only together.
"""
cimport cython
from libc.stdint cimport int32_t, uint64_t

from simulator.core.hash_map cimport HashMap
from simulator.core.index_list cimport IndexLinks, IndexList
from simulator.domain.request cimport Request
from simulator.kv.content cimport Content


cdef struct Prefix:             # a block, or a run of private blocks, that at least one replica holds whole
    uint64_t hash               # 0: this entry is free
    int32_t holders             # replicas that hold it
    int32_t spare


cdef struct Held:               # a block, or what is left of a run, in the LRU of one replica
    uint64_t hash
    int32_t prefix              # its entry; -1: a run of which the beginning is gone, so that it can not be hit
    int32_t num_blocks


@cython.final
cdef class PrefixIndex:
    cdef readonly int32_t capacity      # blocks per replica
    cdef readonly int32_t block_size    # tokens
    cdef int32_t _num_replicas
    cdef int32_t _num_words             # 64-bit words in a set of replicas
    cdef Content _content
    cdef const Request* _requests       # [row] borrowed
    cdef object _owner                  # of these

    cdef HashMap _prefix_of             # hash -> entry of _prefixes
    cdef Prefix* _prefixes
    cdef uint64_t* _holders             # [entry][word] bit r: replica r holds it
    cdef IndexLinks _prefix_links
    cdef IndexList _free_prefixes       # in order of release, so that the blocks of a prompt stay side by side
    cdef HashMap _held_of               # hash with replica -> entry of _held
    cdef Held* _held
    cdef IndexLinks _links              # of the LRU lists, oldest first
    cdef IndexList* _lru                # [replica]
    cdef IndexList _free_held
    cdef int32_t* _blocks               # [replica] blocks in its LRU

    cdef uint64_t* _hashes              # of the public blocks of request _row; at the end of a run, its own
    cdef int32_t _room                  # of _hashes
    cdef int32_t _row                   # -1: none yet
    cdef int32_t _public, _private      # blocks of its prompt
    cdef uint64_t* _alive               # [word] replicas that hold all blocks so far

    # Whole blocks of a prompt.
    cdef inline int32_t num_blocks(self, int32_t row) noexcept nogil:
        return self._requests[row].prompt_tokens // self.block_size

    cdef inline int32_t size(self, int32_t replica) noexcept nogil:
        return self._blocks[replica]

    # Count the leading blocks of a prompt that each replica holds, [num_replicas]; return the largest count.
    cdef int32_t match(self, int32_t row, int32_t* matched) except -1 nogil

    # A prompt was sent to a replica: its blocks are the latest there, in their order.
    cdef int touch(self, int32_t row, int32_t replica) except -1 nogil

    # A replica holds nothing any more.
    cdef int forget(self, int32_t replica) except -1 nogil

    cdef int _read(self, int32_t row) except -1 nogil
    cdef int32_t _find(self, uint64_t hash, int32_t guess) noexcept nogil
    cdef int _touch_run(self, int32_t replica) except -1 nogil
    cdef int32_t _add(self, uint64_t hash, int32_t num_blocks, int32_t replica) except -1 nogil
    cdef int32_t _hold(self, int32_t held, int32_t replica, int32_t guess) except -1 nogil
    cdef void _let_go(self, int32_t held, int32_t replica) noexcept nogil
    cdef void _evict(self, int32_t replica, int32_t num_blocks) noexcept nogil
    cdef int _grow_prefixes(self) except -1 nogil
    cdef int _grow_held(self) except -1 nogil
    cpdef int check(self) except -1
