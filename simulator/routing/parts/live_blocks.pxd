"""Blocks of the requests that each replica has now: equal blocks of several requests count once."""
cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t

from simulator.core.hash_map cimport HashMap
from simulator.domain.request cimport Request
from simulator.kv.content cimport Content
from simulator.signals.holder_sets cimport HolderSets


cdef enum:
    WEIGHT_BITS = 30            # a whole block weighs 2**30


cdef struct LiveBlock:          # a block that several requests may have, at one replica
    int64_t discount            # 2**30 less its weight
    int32_t users               # requests with it
    int32_t next                # of an unused element: the next one; -1: none


cdef struct OwnBlocks:          # of a request: blocks of its prompt that no other request can have, and output blocks
    int64_t discount            # of all these together
    int32_t num_blocks
    int32_t num_outputs         # output blocks among these


@cython.final
cdef class LiveBlocks:
    cdef readonly int32_t block_size    # tokens
    cdef int32_t _num_replicas
    cdef Content _content
    cdef const Request* _requests       # [row] borrowed
    cdef object _owner                  # of _requests
    cdef HolderSets _holders            # which replicas have a block, by hash
    cdef HashMap _index_of              # hash with replica -> element of _shared
    cdef LiveBlock* _shared
    cdef int32_t _room                  # elements of _shared
    cdef int32_t _free                  # first unused one; -1: none
    cdef OwnBlocks* _own                # [row]
    cdef int64_t* _count                # [replica] blocks, each as a whole one
    cdef int64_t* _discount             # [replica] of all blocks
    cdef uint64_t* _hashes              # of the public blocks of the prompt of request _row
    cdef int32_t _hash_room
    cdef int32_t _row                   # -1: none yet
    cdef int32_t _public, _private      # blocks of its prompt

    # Blocks of a replica by their weights, rounded half up.
    cdef inline int64_t blocks(self, int32_t replica) noexcept nogil:
        return (
            (self._count[replica] << WEIGHT_BITS) - self._discount[replica] + (1 << (WEIGHT_BITS - 1))) >> WEIGHT_BITS

    # Whole blocks of a prompt.
    cdef inline int32_t num_blocks(self, int32_t row) noexcept nogil:
        return self._requests[row].prompt_tokens // self.block_size

    # Output blocks of a live request so far.
    cdef inline int32_t num_outputs(self, int32_t row) noexcept nogil:
        return self._own[row].num_outputs

    # Count the leading blocks of a prompt that the requests of each replica have, [num_replicas].
    cdef int match(self, int32_t row, int32_t* matched) except -1 nogil

    # A replica has a request; it no longer has it.
    cdef int add(self, int32_t row, int32_t replica) except -1 nogil
    cdef int remove(self, int32_t row, int32_t replica) except -1 nogil

    # A request has one more output block; `weight` >= 0: of it and of all its blocks that no other request has now.
    cdef int add_output(self, int32_t row, int32_t replica, double weight) except -1 nogil

    cdef int _read(self, int32_t row) except -1 nogil
    cdef int32_t _new_block(self) except -1 nogil
    cpdef int check(self) except -1
