"""The replica to which a session is bound, for a time after its last request."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.domain.request cimport Demand
from simulator.signals.view cimport View


cdef struct SessionBinding:
    int64_t until_ns                    # end, while no request of the session is in flight
    int32_t replica                     # + 1; 0: none
    int32_t in_flight                   # requests of the session since it was bound


@cython.final
cdef class SessionBindings:
    cdef SessionBinding* _bindings      # [session]
    cdef int64_t _ttl_ns
    cdef View _view
    cdef const Demand* _demands         # [row] borrowed
    cdef object _owner

    # The open replica to which the session of a request is bound; -1: none, or it has no session.
    cdef int32_t of(self, int32_t row, int64_t now_ns) noexcept nogil

    # Notifications: the request was sent to a replica; it has left the replica.
    cdef void sent(self, int32_t row, int32_t replica, int64_t now_ns) noexcept nogil
    cdef void left(self, int32_t row, int32_t replica, int64_t now_ns) noexcept nogil
