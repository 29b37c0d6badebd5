"""What the prefix caches of running replicas hold of a prompt: an index from hashes to holders, kept as caches change.

What is found by hash changes when a replica acts, and within a run when a cached block is taken or one fills that
others may find. So a decision brings those replicas up to date alone, and is paid for by the blocks of its prompt.
"""
from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t
cimport cython

from simulator.domain.request cimport Request
from simulator.engine.fleet.laggards cimport Laggards
from simulator.engine.fleet.live_tiers cimport LiveTiers
from simulator.engine.fleet.outdated cimport Outdated
from simulator.engine.replica.departures cimport Departures
from simulator.kv.content cimport Content


cdef struct CacheGroup:         # replicas whose KV blocks have the same size, and the same hashes
    int32_t block_size          # tokens
    int32_t hash_tokens         # over which hashes are chained: a divisor of it
    int32_t scale               # LiveCaches.block_size that fit one
    void* holders               # HolderSets, borrowed: of the blocks in their prefix caches, as seen last
    int32_t* matched            # [replica] leading blocks in its cache; of others: 0


@cython.final
cdef class LiveCaches:
    cdef readonly int32_t num_replicas
    cdef readonly int32_t block_size    # tokens, in which `find` counts: the greatest common divisor of their blocks
    cdef Laggards _laggards             # None: replicas are up to date whenever somebody looks
    cdef Outdated outdated              # replicas whose caches may be other than the index says
    cdef list _replica_list             # [replica] Replica
    cdef void** _replicas               # [replica] the same, borrowed
    cdef int32_t* _indexes              # [replica] its number in the cluster
    cdef list _logs                     # [replica] CacheLog; None: it has no prefix cache
    cdef void** _log                    # the same, borrowed; NULL where there is none
    cdef CacheGroup* _groups            # [_num_groups]
    cdef int32_t _num_groups
    cdef int32_t* _group_of             # [replica]
    cdef list _holder_list              # [group] the HolderSets themselves
    cdef readonly LiveTiers tiers       # None: nobody asks for them, or nobody has one
    cdef int64_t _delay_ns              # age up to which what was seen of the caches is used again; 0: always live
    cdef int64_t _seen_ns
    cdef int32_t _row                   # the request that was looked for last, in the index as it is; -1: none
    cdef const int32_t* _found          # [replica] of it
    cdef int32_t* _scaled               # [replica] scratch; NULL: all blocks have the same size
    cdef uint64_t* _hashes              # [_room] of the blocks of its prompt
    cdef int32_t _room
    cdef const Request* _requests       # borrowed from the workload
    cdef Content _content
    cdef Departures _departures         # knows which replicas have acted at this instant
    cdef object _owners                 # what the pointers borrow from

    # Leading blocks of a prompt in the cache of each replica, [num_replicas], as far as can be known at `now_ns`. Valid
    # until the next call.
    cdef const int32_t* find(self, int32_t row, int64_t now_ns) except NULL nogil

    # The same of tiers besides, which there are; see View.
    cdef const int32_t* tiers_in_turn(self, int32_t row, int32_t media, int64_t now_ns) except NULL nogil
    cdef const int32_t* best_tiers(self, int32_t row, const int8_t* order, int32_t num_ordered,
                                   int64_t now_ns) except NULL nogil

    cdef int _see(self, int64_t now_ns) except -1 nogil
    cdef int _bring_all(self, int64_t now_ns) except -1 nogil
    cdef int _take_in(self, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int _match(self, int32_t row, const CacheGroup* group) except -1 nogil
    cdef void _scale(self) noexcept nogil

    # Raise RuntimeError if a cache has changed and the index does not know, or the index is broken.
    cdef int _check(self) except -1 nogil
