"""Hits of a prompt in the KV tiers of running replicas, besides prefix caches: an index kept as tiers change.

A tier changes when its replica acts, or when a write into a store that several replicas share has ended. So LiveCaches,
which brings replicas up to date before a lookup, passes on which of their tiers may have changed.
"""
from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t
cimport cython

from simulator.domain.request cimport Request
from simulator.kv.cache_log cimport CacheLog
from simulator.kv.content cimport Content
from simulator.signals.tier_holders cimport Leading, TierHolders


cdef struct TierGroup:          # replicas with the same blocks, chunks and hashes
    int32_t block_size          # tokens
    int32_t scale               # number of LiveTiers.block_size units in a block
    int32_t chunk_tokens
    int32_t chain_tokens        # see kv/holdings.py
    void* holders               # TierHolders, borrowed


cdef struct Followed:           # a store of chunks that is followed
    void* store                 # ChunkStore, borrowed
    void* log                   # CacheLog, borrowed
    int32_t group
    int32_t medium
    int32_t holder              # the replica, or on SHARED the number of the store in its group
    int32_t begin, end          # range of `_followed`: all stores on this medium of the holder


@cython.final
cdef class LiveTiers:
    cdef readonly int32_t num_replicas
    cdef readonly int32_t block_size    # tokens, in which blocks are counted: LiveCaches.block_size
    cdef TierGroup* _groups             # [_num_groups]
    cdef int32_t _num_groups
    cdef int32_t* _group_of             # [replica]
    cdef Followed* _followed            # [_num_followed] stores of each replica, then SHARED ones
    cdef int32_t _num_followed
    cdef int32_t* _first_of             # [replica], then one more: the first that is SHARED
    cdef int32_t* _scaled               # [medium x replica] scratch; NULL: there is one group
    cdef uint64_t* _hashes              # [_room] scratch
    cdef int32_t _room
    cdef const Request* _requests       # borrowed from the workload
    cdef Content _content
    cdef object _owners                 # owners of the borrowed pointers

    # Apply the changes at a replica that was brought up to date; take_in_stores: in shared stores, as of `now_ns`.
    cdef int take_in(self, int32_t replica) except -1 nogil
    cdef int take_in_stores(self, int64_t now_ns) except -1 nogil

    # See View.
    cdef const int32_t* in_turn(self, int32_t row, int32_t media) except NULL nogil
    cdef const int32_t* best(self, int32_t row, const int8_t* order, int32_t num_ordered) except NULL nogil

    cdef int _take_in_all(self, int32_t begin, int32_t end) except -1 nogil
    cdef int _take_in(self, const Followed* it, CacheLog log, TierHolders holders) except -1 nogil
    cdef const int32_t* _match(self, int32_t row, int32_t media, const int8_t* order,
                               int32_t num_ordered) except NULL nogil
    cdef int _read(self, int32_t row, const TierGroup* group, Leading* text) except -1 nogil
    cdef const int32_t* _scale(self) noexcept nogil

    # Raise RuntimeError if the index differs from the contents of a replica's stores.
    cdef int check_replica(self, int32_t replica) except -1 nogil
