"""The gateway's view of replicas that run: at the instant it looks, or as of the last snapshot."""
from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t
cimport cython

from simulator.domain.request cimport Request
from simulator.engine.replica.departures cimport Departures
from simulator.kv.content cimport Content
from simulator.signals.holder_sets cimport HolderSets
from simulator.signals.view cimport View


@cython.final
cdef class LiveView(View):
    cdef void** _replicas               # [replica] Replica, borrowed
    cdef int64_t _interval_ns           # age up to which a snapshot is used again; 0: none
    cdef int64_t _taken_ns              # when the snapshot was taken
    cdef int32_t* _noted                # replicas that acted since the last look, each once; without snapshots only
    cdef int8_t* _is_noted              # [replica]
    cdef int32_t _num_noted
    cdef const Request* _requests       # borrowed from the workload

    cdef list _logs                     # [replica] CacheLog; None: it has no prefix cache. Kept from when somebody asks
    cdef void** _log                    # the same, borrowed; NULL where there is none
    cdef HolderSets _holders            # of the blocks in their prefix caches, as seen last
    cdef Content _content
    cdef int32_t _block_size
    cdef bint _is_settled               # nothing has acted since the caches were looked at
    cdef int64_t _cache_delay_ns        # age up to which what was seen of the caches is used again; 0: always live
    cdef int64_t _caches_seen_ns
    cdef int32_t _matched_row           # the request that `_matched` is about; -1: none
    cdef int32_t* _matched              # [replica] leading blocks in its cache
    cdef uint64_t* _hashes              # [_room] of the blocks of its prompt
    cdef int32_t _room
    cdef Departures _departures         # knows which replicas have acted at this instant
    cdef list _replica_list             # [replica] the objects themselves
    cdef object _owners                 # what the pointers borrow from

    # A replica acted, or was changed: a live view must read its counts again.
    cdef inline void note(self, int32_t replica) noexcept nogil:
        self._is_settled = False
        if not self._is_noted[replica]:
            self._is_noted[replica] = True
            self._noted[self._num_noted] = replica
            self._num_noted += 1

    cdef int _see_caches(self, int64_t now_ns) except -1 nogil
    cdef int _match(self, int32_t row) except -1 nogil
    cdef int _read(self, int32_t replica, int64_t now_ns) except -1 nogil
