"""The event loop: arrivals, events and replicas on one clock."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.request cimport Demand, Request
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.fleet.events cimport NUM_KINDS
from simulator.engine.fleet.delayed cimport Delayed
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.output.recorder cimport Recorder
from simulator.engine.sources.base cimport Source


@cython.final
cdef class Cluster:
    cdef readonly Fleet fleet
    cdef readonly Source source
    cdef readonly list gateways        # Gateway
    cdef readonly list operations       # Operation
    cdef readonly object workload
    cdef readonly int64_t clock_ns      # of the last event; while draining, the end of the slice
    cdef int32_t _num_gateways
    cdef void** _gateways              # the elements of `gateways` and of `operations`, borrowed
    cdef void** _operations
    cdef int32_t _num_operations
    cdef int32_t* _gateway_of          # [model code + 1] of a request's model; -1: no pool serves it
    cdef void* _continuing              # the operation that continues requests at other replicas, borrowed; NULL: none
    cdef void* _handlers[NUM_KINDS]     # Operation of an event kind, borrowed; NULL: the cluster's own
    cdef Recorder _recorder
    cdef bint _names_models             # some request names its model
    cdef object _journeys               # records.JOURNEY; None: not kept
    cdef object _monitor                # monitor(clock_ns, finished) -> bool: stop; None: no monitor
    cdef Request* _requests             # borrowed from the workload, like _demands
    cdef const Demand* _demands
    cdef int32_t* _following            # [arrival] of a slice: the next request of the same replica; -1: none
    cdef Delayed _delayed               # requests on their way to replicas that do not see each other; None: no delays
    cdef int32_t* _ends                 # [2 x replica] first requests of each in the slice; then the last ones
    cdef int64_t _num_requests          # rows of the workload
    cdef int64_t _horizon_ns            # nothing after this instant happens; NEVER_NS - 1: no horizon
    cdef int64_t _give_up_ns            # give_up_ns and give_up_failing_ns of ClusterPlan
    cdef int64_t _give_up_failing_ns
    cdef int64_t _gave_up_ns            # the limit of the two above that has passed; 0: neither
    cdef bint _gave_up_quietly          # that limit is _give_up_ns
    cdef object _plan                   # ClusterPlan
    cdef object _encoded_tokens         # int64 (requests,), embeddings encoded for each; None: there are no encoders
    cdef object _tier_use               # structured array (requests,), `records.TIER_USE`; None: there are no tiers
    cdef dict _stores                   # {name: Level} of KV that replicas share
    cdef object _observer               # called with every batch; None: no observer
    cdef int32_t _first, _last          # the replicas that are served; those of other parts of the cluster are not
    cdef object _lanes                  # Lanes, if several threads serve the replicas; None: one thread
    cdef int64_t _last_event_ns         # arrival, time-out or other loss of a request
    cdef int64_t _quiet_since_ns        # nothing but ticks happened since then
    cdef int64_t _idle_since_ns         # as _quiet_since_ns, but failures and repairs do not count as events
    cdef int64_t _next_poll             # recorder.iterations at which the monitor is called next
    cdef int64_t _poll_iterations       # interval of calls to the monitor
    cdef int32_t _looks_in              # events until the next check for progress
    cdef int64_t _marks[4]              # clock, requests that arrived and left, and iterations, at the last check
    cdef int64_t _num_still             # events since the last progress
    cdef int64_t _most_still            # number of events without progress that ends the run
    cdef bint _stands_still             # that number was reached
    cdef bint _stopped                  # by the monitor, a livelock or an exception

    # Return the gateway of a request; -1: no pool serves its model.
    cdef inline int32_t _gateway_for(self, int32_t row) noexcept nogil:
        return self._gateway_of[self._demands[row].model + 1 if self._names_models else 0]

    # Return when a request must have left, in engine time; replica -1: it is at no replica, and the replicas behind
    # this gateway must have served it by then.
    cdef inline int64_t _due_ns(self, int32_t row, int32_t gateway, int32_t replica) noexcept nogil:
        if replica >= 0:
            return self.fleet.due_ns(row, replica)
        return self._demands[row].deadline_ns - (<Gateway>self._gateways[gateway]).shift_ns

    # Serve arrivals if replicas are affected by arrivals only: many per replica at once.
    cdef int _run_in_slices(self) except -1 nogil
    cdef int64_t _serve_slice(self, int64_t window) except -1 nogil
    cdef int _serve_some(self, int32_t first, int32_t last, int64_t begin) except -1 nogil
    cdef int _send_some(self, int32_t first, int32_t last, int64_t begin) except -1 nogil
    cdef int _serve_delayed(self) except -1 nogil
    cdef int64_t _fitted(self, int64_t slice_ns, int64_t iterations) noexcept nogil

    # Process arrivals, events and replicas in order of time, up to the horizon or until nothing is left to do.
    cdef int _loop(self) except -1 nogil
    cdef int _drain(self) except -1 nogil
    cdef int _advance_all(self, int64_t until_ns) except -1 nogil

    # Called every LOOK_EVENTS events: show progress, and stop if nothing moves any more.
    cdef int _look(self, int64_t now_ns) except -1 nogil
    cdef int _end_transfers(self) except -1 nogil

    # Handlers of single events.
    cdef int _arrive(self, int64_t now_ns) except -1 nogil
    cdef int _pop(self) except -1 nogil
    cdef int _time_out(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef bint _is_over(self, int64_t now_ns) noexcept nogil
    cdef bint _gives_up(self, int64_t waited_ns, int64_t most_ns, bint is_quiet) noexcept nogil
    cdef int _hear_of_departures(self, int64_t now_ns) except -1 nogil

    # Pass rows on, show progress, and call the monitor.
    cdef int _poll(self, int64_t now_ns) except -1 nogil
    cdef int64_t _held_bytes(self) except -1 nogil
