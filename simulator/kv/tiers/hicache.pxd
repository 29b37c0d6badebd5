"""Host memory of a replica of SGLang with HiCache, and a store below it: the timing of copies that the tree requests.

The tree (kv/radix_host.pxd) requests copies. Here a copy waits for the batch that computes its tokens, takes its time,
and is noticed when the next batch is formed. See hicache_store.pxd for the store.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.row_list cimport RowList
from simulator.domain.tables cimport TierUse
from simulator.kv.content cimport Content
from simulator.kv.radix cimport RadixKV
from simulator.kv.radix_host cimport Backup, HostTree, Loading
from simulator.kv.tier cimport KVTier
from simulator.kv.tiers.hicache_store cimport HicacheStore
from simulator.kv.tiers.lane cimport Lane


@cython.final
cdef class HicacheTier(KVTier):
    cdef RadixKV _kv
    cdef HostTree _tree                 # the tree of _kv
    cdef readonly HicacheStore store    # None: there is none
    cdef object _settings               # HicacheSettings
    cdef list _levels                   # Level, at most one
    cdef Lane _store_lane, _load_lane
    cdef int64_t _page                  # tokens
    cdef double _layers                 # 0: loads are not hidden
    cdef bint _writes_back
    cdef int32_t _num_due               # backups that were requested when the pass began
    cdef Backup* _writing               # [_num_writing] under way
    cdef int32_t _num_writing, _writing_room
    cdef RowList _write_counts          # nodes of each copy in flight
    cdef RowList _load_counts           # paths of each copy in flight
    cdef Loading* _loading              # [_num_loading] under way
    cdef int32_t _num_loading, _loading_room
    cdef int64_t _loaded_ns             # when the loads of the batch launched last end; 0: it has none
    cdef bint _has_waited               # the pass waited for copies
    cdef int32_t _loaded_row            # the request admitted last with KV from host memory, and its tokens
    cdef int64_t _loaded_tokens
    cdef TierUse* _use                  # [row]; NULL: not requested
    cdef object _use_owner
    cdef int64_t _num_stores, _stored, _num_loads, _loaded      # tokens
    cdef int64_t _store_copies, _load_copies
    cdef int64_t _started, _cancelled, _waited_ns, _hits

    # A pass of the scheduler begins: notice copies, reads and writes that ended by `now_ns`.
    cdef int take_notice(self, int64_t now_ns) except -1 nogil

    cdef RowList entered                # rows that have entered the queue since the last pass
    cdef readonly bint has_store        # there is a store below

    # Prefetch tokens of a text that the store has, behind its first `begin`, which end with `node`, up to `end`.
    # may_go(): may the request be admitted? Else it waits for its prefetch.
    cdef inline int ask(self, int32_t row, int32_t node, int64_t begin, int64_t end) except -1 nogil:
        return self.store.ask(row, node, begin, end)

    cdef inline bint may_go(self, int32_t row, int64_t now_ns) except -1 nogil:
        return self.store.may_go(row, now_ns)

    # A request begins with `tokens` tokens from host memory.
    cdef void begins_with(self, int32_t row, int64_t tokens) noexcept nogil

    cdef int64_t _write_back(self, int64_t now_ns, int64_t free_ns) except -1 nogil
    cdef int _begin_writing(self, int64_t now_ns) except -1 nogil
    cdef int _begin_loading(self, int64_t now_ns) except -1 nogil
    cdef int _take_written(self, int64_t now_ns) except -1 nogil
    cdef int _take_loaded(self, int64_t now_ns) except -1 nogil
    cdef void _count_written(self, const Backup* backup) noexcept nogil
