"""The event loop: replicas on one clock, fed by arrivals."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.event_queue cimport EventQueue
from simulator.core.wake_heap cimport WakeHeap
from simulator.domain.request cimport Demand, Request
from simulator.engine.recorder cimport Recorder
from simulator.engine.replica cimport Replica
from simulator.routing.base cimport Router


cdef enum EventKind:            # kinds of events, and their priorities at equal times; arrivals go before all of them
    ENQUEUE = 1                 # a request reaches the waiting queue of its replica
    REPLICAS = 8                # (replicas act: not in the queue, listed for its place)
    TIME_OUT = 9                # the client of a request gives up


@cython.final
cdef class Cluster:
    cdef readonly list replicas
    cdef readonly object workload
    cdef readonly int64_t clock_ns
    cdef void** _replicas               # the same, borrowed
    cdef int32_t _num_replicas
    cdef Router _router
    cdef Recorder _recorder
    cdef object _monitor
    cdef Request* _requests
    cdef const Demand* _demands
    cdef bint _has_deadlines            # of any request
    cdef int64_t _num_requests, _next   # rows; the next to arrive
    cdef int64_t _horizon_ns            # nothing after this instant happens
    cdef double _queue_base_ns, _queue_token_ns     # [latency.host] queue_*
    cdef EventQueue _events
    cdef WakeHeap _wakes                # used if the router reads state
    cdef bint _coupled                  # replicas are kept up to date with every event
    cdef int64_t _next_poll             # iterations at which the monitor is asked again
    cdef bint _stopped

    cdef int _loop(self) except -1 nogil
    cdef int _drain(self) except -1 nogil
    cdef int _arrive(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _enqueue(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _time_out(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _catch_up(self, int64_t until_ns) except -1 nogil
    cdef int _advance_all(self, int64_t until_ns) except -1 nogil
    cdef int _poll(self, int64_t now_ns) except -1 nogil
