"""Leading blocks of prompts that a router has sent to each replica: one LRU of block hashes per replica.

The private blocks of a prompt, which no other request can have, are one entry with a count: they can be hit only if the
same request is sent again, and then only together.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t

from simulator.core.hash_map cimport HashMap
from simulator.core.index_list cimport IndexLinks, IndexList
from simulator.domain.request cimport Request
from simulator.kv.content cimport Content
from simulator.signals.holder_sets cimport HolderSets


cdef struct Held:               # a block, or the rest of a run, in the LRU of one replica
    uint64_t hash
    int64_t touched_ns          # when it was sent last
    int32_t num_blocks
    int32_t is_whole            # 0: a run without its beginning, which cannot be hit


cdef struct Touch:              # a prompt was sent to a replica
    int64_t time_ns
    int32_t replica
    int32_t spare


@cython.final
cdef class PrefixIndex:
    cdef readonly int32_t capacity      # blocks per replica
    cdef readonly int64_t ttl_ns        # a block is forgotten that long after it was sent last; 0: never
    cdef int64_t _now_ns                # of the last `expire`
    cdef Touch* _touches                # ring of _touch_room (a power of two) of the touches within ttl_ns, by time
    cdef int64_t _touch_room
    cdef int64_t _first_touch           # number of the first and behind the last, modulo _touch_room in the ring
    cdef int64_t _end_touch
    cdef readonly int32_t block_size    # tokens
    cdef bint _counts_rest              # the tokens behind the last whole block of a prompt are a block, too
    cdef int32_t _num_replicas
    cdef Content _content
    cdef const Request* _requests       # [row] borrowed
    cdef object _owner                  # of _requests

    cdef HolderSets _holders            # which replicas hold a block, or a run whole, by hash
    cdef HashMap _held_of               # hash with replica -> entry of _held
    cdef Held* _held
    cdef IndexLinks _links              # of the LRU lists, oldest first
    cdef IndexList* _lru                # [replica]
    cdef IndexList _free_held
    cdef int32_t* _blocks               # [replica] blocks in its LRU

    cdef uint64_t* _hashes              # of the public blocks of request _row, then of its private run
    cdef int32_t _room                  # of _hashes
    cdef int32_t _row                   # -1: none yet
    cdef int32_t _public, _private      # blocks of its prompt

    # Blocks of a prompt: whole ones, and the rest behind them if it counts.
    cdef inline int32_t num_blocks(self, int32_t row) noexcept nogil:
        cdef int32_t rest = self.block_size - 1 if self._counts_rest else 0
        return (self._requests[row].prompt_tokens + rest) // self.block_size

    cdef inline int32_t size(self, int32_t replica) noexcept nogil:
        return self._blocks[replica]

    # Count the leading blocks of a prompt that each replica holds, [num_replicas]; return the largest count.
    cdef int32_t match(self, int32_t row, int32_t* matched) except -1 nogil

    # The same, and write the replicas that hold any to `found`, [num_replicas], in order; return their number.
    cdef int32_t match_some(self, int32_t row, int32_t* matched, int32_t* found) except -1 nogil

    # A prompt was sent to a replica: its blocks are the latest there, in their order.
    cdef int touch(self, int32_t row, int32_t replica) except -1 nogil

    # Forget blocks that were sent last ttl_ns ago. Called before `match` and `touch`, if there is a ttl_ns.
    cdef int expire(self, int64_t now_ns) except -1 nogil

    # A replica holds nothing any more.
    cdef int forget(self, int32_t replica) except -1 nogil

    cdef int _read(self, int32_t row) except -1 nogil
    cdef uint64_t _rest_hash(self, int32_t row, int32_t whole) noexcept nogil
    cdef int _touch_run(self, int32_t replica) except -1 nogil
    cdef int32_t _add(self, uint64_t hash, int32_t num_blocks, int32_t replica) except -1 nogil
    cdef int _evict(self, int32_t replica, int32_t num_blocks) except -1 nogil
    cdef int _grow(self) except -1 nogil
    cdef int _note_touch(self, int32_t replica) except -1 nogil
    cpdef int check(self) except -1
