"""The gateway's view of running replicas: at the instant of a look, or as of the last snapshot."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.engine.fleet.laggards cimport Laggards
from simulator.engine.fleet.live_caches cimport LiveCaches
from simulator.engine.fleet.outdated cimport Outdated
from simulator.engine.replica.departures cimport Departures
from simulator.signals.view cimport View


@cython.final
cdef class LiveView(View):
    cdef void** _replicas               # [replica] Replica, borrowed
    cdef int64_t _interval_ns           # age up to which a snapshot is used again; 0: none
    cdef int64_t _taken_ns              # when the snapshot was taken
    cdef Outdated _outdated             # replicas that may have changed since they were read; unused where they lag
    cdef int8_t _closeness              # Closeness of live looks: how much they read
    cdef Laggards _laggards             # None: replicas are up to date at every look
    cdef int8_t* _held  # [replica x adapter] loaded when the snapshot was taken; NULL: adapters are not read, or
                                        # looks are live
    cdef int32_t _num_adapters
    cdef LiveCaches _caches             # None: no policy reads them
    cdef int64_t _cache_delay_ns        # age up to which the last reading of the caches is used again; 0: always live
    cdef readonly int32_t block_size    # tokens in a unit of `cached_blocks`: greatest common divisor of block sizes
    cdef Departures _departures         # with the replicas that have acted at this instant
    cdef list _replica_list             # [replica] the objects themselves
    cdef object _owners                 # owners of the borrowed pointers

    # A replica acted, or was changed: a live view must read it again.
    cdef inline void note(self, int32_t replica) noexcept nogil:
        self._outdated.note(replica)
        if self._caches is not None:
            self._caches.outdated.note(replica)

    cdef int _look_again(self, int64_t now_ns) except -1 nogil
    cdef void _read_adapters(self, int32_t replica, int64_t now_ns) noexcept nogil
    cdef int _look_live(self, int64_t now_ns) except -1 nogil
    cdef int _read_all(self, int64_t now_ns) except -1 nogil
    cdef int _read_changed(self, int8_t closeness, int64_t now_ns) except -1 nogil
    cdef void _look_closer(self, int8_t closeness) noexcept nogil
    cdef int _read(self, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int64_t _due_ns(self, int32_t replica, int64_t now_ns) noexcept nogil

    # Raise RuntimeError if a live view differs from the state of a replica.
    cdef int _check(self, int64_t now_ns) except -1 nogil
