"""What the tiers of running replicas hold of a prompt, beside their prefix caches: an index kept as tiers change.

A tier changes when its replica acts, or a write into a store that several share has ended. So LiveCaches, which brings
up to date whom it looks at, hands on who may have changed.
"""
from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t
cimport cython

from simulator.domain.request cimport Request
from simulator.kv.cache_log cimport CacheLog
from simulator.kv.content cimport Content
from simulator.signals.tier_holders cimport Leading, TierHolders


cdef struct TierGroup:          # replicas with the same blocks, chunks and hashes
    int32_t block_size          # tokens
    int32_t scale               # LiveTiers.block_size that fit one
    int32_t chunk_tokens
    int32_t chain_tokens        # see kv/holdings.py
    void* holders               # TierHolders, borrowed


cdef struct Followed:           # something that holds chunks
    void* store                 # ChunkStore, borrowed, as is the next
    void* log                   # CacheLog
    int32_t group
    int32_t medium
    int32_t holder              # the replica, or on SHARED the store's number in its group
    int32_t begin, end          # of `_followed`: all that is on this medium of the holder


@cython.final
cdef class LiveTiers:
    cdef readonly int32_t num_replicas
    cdef readonly int32_t block_size    # tokens, in which blocks are counted: LiveCaches.block_size
    cdef TierGroup* _groups             # [_num_groups]
    cdef int32_t _num_groups
    cdef int32_t* _group_of             # [replica]
    cdef Followed* _followed            # [_num_followed] those of each replica, then stores that are SHARED
    cdef int32_t _num_followed
    cdef int32_t* _first_of             # [replica], then one more: the first that is SHARED
    cdef int32_t* _scaled               # [medium x replica] scratch; NULL: there is one group
    cdef uint64_t* _hashes              # [_room] scratch
    cdef int32_t _room
    cdef const Request* _requests       # borrowed from the workload
    cdef Content _content
    cdef object _owners                 # what the pointers borrow from

    # Take in what came and went at a replica, which was brought up to date; in stores that are shared, at `now_ns`.
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

    # Raise RuntimeError if what is held has changed unseen.
    cdef int check_replica(self, int32_t replica) except -1 nogil
