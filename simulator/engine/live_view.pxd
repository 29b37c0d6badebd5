"""The gateway's view of replicas that run: at the instant it looks, or as of the last snapshot."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.domain.request cimport Request
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
    cdef object _owners                 # those the pointers borrow from

    # A replica acted, or was changed: a live view must read its counts again.
    cdef inline void note(self, int32_t replica) noexcept nogil:
        if not self._is_noted[replica]:
            self._is_noted[replica] = True
            self._noted[self._num_noted] = replica
            self._num_noted += 1

    cdef int _read(self, int32_t replica, int64_t now_ns) except -1 nogil
