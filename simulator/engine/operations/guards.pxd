"""Replicas that get no requests for a while after failures: cooldowns and circuit breakers."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.operations.agenda cimport Agenda
from simulator.engine.operations.lifecycle cimport Lifecycle


@cython.final
cdef class Guards:
    cdef Fleet _fleet
    cdef Agenda _agenda
    cdef Lifecycle _lifecycle
    cdef object _cooldown               # domain.guards.Cooldown; None: there is none
    cdef void** _assignments            # [replica] Assignment of requests to instances of its gateway, borrowed; NULL:
                                        # the gateway has one instance
    cdef list _circuits                 # [slot] domain.guards.Circuit, one for all ranks; None: no breaker
    cdef int64_t _open_ns               # Breaker.open_s
    cdef int64_t _minute                # of the clock, of the next two
    cdef int32_t _num_slots             # instances of a gateway x replicas: an instance counts each replica by itself
    cdef int64_t* _successes            # [slot] requests that completed in this minute
    cdef int64_t* _failures             # [slot]
    cdef int8_t* _on_trial              # [slot] completed requests are counted by its breaker
    cdef dict _cools_until              # slot of the first rank -> when its cooldown ends, in ns

    # A request has left a replica for good.
    cdef int ended(self, int32_t row, int64_t now_ns) except -1 nogil

    cdef int32_t _instance_of(self, int32_t row, int32_t replica) noexcept nogil
    cdef int32_t _http_status(self, int32_t row) except -1 nogil
    cdef void _advance(self, int64_t now_ns) noexcept nogil
