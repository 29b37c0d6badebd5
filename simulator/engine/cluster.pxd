"""The event loop: replicas on one clock, fed by arrivals."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.event_queue cimport EventQueue
from simulator.core.wake_heap cimport WakeHeap
from simulator.domain.request cimport Demand, Request
from simulator.engine.recorder cimport Recorder
from simulator.engine.replica cimport Replica
from simulator.routing.base cimport Router


cdef enum EventKind:            # kind and priority in one: at equal times the lowest goes first; arrivals before all
    ENQUEUE = 1                 # a request reaches the waiting queue of its replica
    REPLICAS = 8                # replicas act; never in the queue, it only shows that they do so between the two
    TIME_OUT = 9                # the client of a request gives up


@cython.final
cdef class Cluster:
    cdef readonly list replicas
    cdef readonly object workload
    cdef readonly int64_t clock_ns      # of the last event; while draining, the end of the slice
    cdef void** _replicas               # [replica] the same objects, borrowed: to be called without the GIL
    cdef int32_t _num_replicas
    cdef Router _router
    cdef Recorder _recorder
    cdef object _monitor                # monitor(clock_ns, finished) -> bool: stop; None: nobody watches
    cdef Request* _requests             # borrowed from the workload, like _demands
    cdef const Demand* _demands
    cdef bint _has_deadlines            # some request has one
    cdef bint _delays_queue             # a request arrives at its replica later than at the cluster
    cdef int32_t* _following            # [arrival] of a slice: the next request of the same replica; -1: none
    cdef int32_t* _ends                 # [2 x replica] the first requests of each in the slice; the last ones
    cdef int64_t _num_requests          # rows of the workload
    cdef int64_t _next                  # row of the next request to arrive
    cdef int64_t _horizon_ns            # nothing after this instant happens; NEVER_NS - 1: no horizon
    cdef double _queue_base_ns          # from arrival to waiting queue, [latency.host] queue_base_us
    cdef double _queue_token_ns         # the same, per prompt token
    cdef int64_t _output_ns             # [latency.host] output_token_us: a client sees a token that much later
    cdef int64_t _last_event_ns         # arrival or time-out
    cdef EventQueue _events
    cdef WakeHeap _wakes                # when each replica must act; kept only if coupled
    cdef bint _coupled                  # replicas are brought up to date with every event: the router looks at them
    cdef int64_t _next_poll             # recorder.iterations at which the monitor is asked again
    cdef bint _stopped                  # by the monitor, a livelock or an exception

    # Arrivals where nothing but arrivals concerns a replica: those of many turns at once.
    cdef int _run_in_slices(self) except -1 nogil
    cdef int64_t _serve_slice(self, int64_t window) except -1 nogil

    # Arrivals and events in order of time, up to the horizon; then iterations until none is left, or to the horizon.
    cdef int _loop(self) except -1 nogil
    cdef int _drain(self) except -1 nogil

    # What one event does.
    cdef int _arrive(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _enqueue(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int _time_out(self, int32_t row, int64_t now_ns) except -1 nogil

    # Advance the replicas that change before `until_ns`, or all of them.
    cdef int _catch_up(self, int64_t until_ns) except -1 nogil
    cdef int _advance_all(self, int64_t until_ns) except -1 nogil

    # Pass rows on, show progress, ask whether to stop.
    cdef int _poll(self, int64_t now_ns) except -1 nogil
