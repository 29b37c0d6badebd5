"""Prefix cache hits of a prompt at running replicas: an index from block hashes to replicas, kept as caches change.

A prefix cache changes when its replica acts, and within a run when a cached block is taken or a block fills that other
requests may find. So a lookup brings only such replicas up to date, and costs time per block of its prompt.
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
    int32_t hash_tokens         # tokens per link of the chain of hashes: a divisor of block_size
    int32_t hashes_ahead        # tokens behind a block that its hash covers
    int32_t scale               # number of LiveCaches.block_size units in a block
    void* holders               # HolderSets, borrowed: of the blocks in their prefix caches, as seen last
    int32_t* matched            # [replica] leading blocks in its cache; 0 for replicas of other groups


@cython.final
cdef class LiveCaches:
    cdef readonly int32_t num_replicas
    cdef readonly int32_t block_size    # tokens, in which `find` counts: the greatest common divisor of their blocks
    cdef Laggards _laggards             # None: replicas are up to date at every lookup
    cdef Outdated outdated              # replicas with caches that may have changed since the index last read them
    cdef list _replica_list             # [replica] Replica
    cdef void** _replicas               # [replica] the elements of _replica_list, borrowed
    cdef int32_t* _indexes              # [replica] its number in the cluster
    cdef list _logs                     # [replica] CacheLog; None: it has no prefix cache
    cdef void** _log                    # the elements of _logs, borrowed; NULL: no prefix cache
    cdef CacheGroup* _groups            # [_num_groups]
    cdef int32_t _num_groups
    cdef int32_t* _group_of             # [replica]
    cdef list _holder_list              # [group] the HolderSets themselves
    cdef readonly LiveTiers tiers       # None: no policy reads them, or no replica has a tier
    cdef int64_t _delay_ns              # age up to which the last reading of the caches is used again; 0: always live
    cdef int64_t _seen_ns
    cdef int32_t _row                   # the request looked up last, in the index as it is; -1: none
    cdef const int32_t* _found          # [replica] result of that lookup
    cdef int32_t* _scaled               # [replica] scratch; NULL: all blocks have one size
    cdef uint64_t* _hashes              # [_room] of the blocks of its prompt
    cdef int32_t _room
    cdef const Request* _requests       # borrowed from the workload
    cdef Content _content
    cdef Departures _departures         # with the replicas that have acted at this instant
    cdef object _owners                 # owners of the borrowed pointers

    # Return leading blocks of a prompt in the cache of each replica, [num_replicas], as far as known at `now_ns`. Valid
    # until the next call.
    cdef const int32_t* find(self, int32_t row, int64_t now_ns) except NULL nogil

    # The same with hits in KV tiers added; see View. Requires `tiers`.
    cdef const int32_t* tiers_in_turn(self, int32_t row, int32_t media, int64_t now_ns) except NULL nogil
    cdef const int32_t* best_tiers(self, int32_t row, const int8_t* order, int32_t num_ordered,
                                   int64_t now_ns) except NULL nogil

    cdef int _see(self, int64_t now_ns) except -1 nogil
    cdef int _bring_all(self, int64_t now_ns) except -1 nogil
    cdef int _take_in(self, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int _match(self, int32_t row, const CacheGroup* group) except -1 nogil
    cdef void _scale(self) noexcept nogil

    # Raise RuntimeError if a cache has changed without an entry in `outdated`, or the index is broken.
    cdef int _check(self) except -1 nogil
