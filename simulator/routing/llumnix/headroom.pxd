"""KV that Llumnix's `freeness` keeps free beside urgent requests, as statuses have it."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.domain.request cimport Request
from simulator.signals.view cimport View


@cython.final
cdef class Headroom:
    cdef int64_t* seen              # [replica] tokens, as of the last `count`; pushed: as of the last `push`
    cdef int64_t* pushed
    cdef const Request* _requests
    cdef View _view
    cdef int8_t[::1] _level_of      # [row] index in _tokens of the priority of each request; -1: none is given
    cdef int32_t[::1] _rows         # requests with a level
    cdef int64_t[::1] _tokens       # [level]
    cdef int32_t[::1] _place_of     # [replica of the cluster] its place in the view; -1: elsewhere
    cdef int8_t[:, ::1] _is_here    # [replica][level] scratch
    cdef bint _is_in_order          # requests arrive in the order of their rows
    cdef object _owner

    # Count what replicas have now; keep that count for later readers.
    cdef void count(self) noexcept nogil
    cdef void push(self) noexcept nogil

    cdef inline bint is_urgent(self, int32_t row) noexcept nogil:
        return self._level_of[row] >= 0
