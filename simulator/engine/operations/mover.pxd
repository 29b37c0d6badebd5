"""Moves of requests from one replica to another."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.operations.links cimport Flow, Links


cdef enum Phase:                # of a move
    COPYING                     # a stage of its KV is copied while it goes on running
    LEAVING                     # it leaves its replica when the iteration in progress has ended
    DRAINING                    # it has left, and tokens of it are still in flight
    LAST_COPY                   # the rest of its KV is copied while it does not run
    SENDING                     # it is sent without KV


@cython.final
cdef class Transit:             # a request that moves
    cdef int32_t row
    cdef int32_t source         # replicas, numbered as in the cluster
    cdef int32_t destination
    cdef int32_t slot           # at the source; -1: it waits there, without KV
    cdef int64_t order          # its admission order there; it changes with a preemption
    cdef int32_t place          # slot reserved at the destination; -1: none
    cdef Phase phase
    cdef int32_t stage          # of the copy, from 1
    cdef int32_t blocks_copied  # blocks that are at the destination
    cdef int32_t blocks_copying     # blocks that will be at the destination after this stage
    cdef Flow flow              # None: no copy is in progress
    cdef int64_t ticket         # of the event that it waits for; 0: none
    cdef int64_t due_ns         # LEAVING, DRAINING: when the iteration ends
    cdef int64_t stopped_ns     # when it stopped running; -1: it runs
    cdef int64_t began_ns       # when the move began


@cython.final
cdef class Mover:
    cdef readonly dict transits         # row -> Transit, in the order in which they began
    cdef readonly int32_t num_transits
    cdef readonly list watchers         # called with (replica, now_ns) when a request has moved off it
    cdef readonly dict counts           # how moves ended: moved, aborted, refused
    cdef Fleet _fleet
    cdef list _replicas         # Replica
    cdef list _gateways        # Gateway
    cdef object _plan           # MovePlan
    cdef Links _links
    cdef list _ports            # [replica] (Port, its scale-up domain)
    cdef dict _carried          # Flow -> Transit
    cdef dict _tickets          # payload of an event -> Transit
    cdef int64_t _last_ticket
    cdef int64_t _link_ticket   # of the event at which the first flow ends
    cdef int64_t _link_end_ns   # when that event is due

    # Begin to move a request that runs in `slot` or waits, -1, from one replica to another, numbered as in the cluster;
    # False: it stays.
    cdef bint begin(self, int32_t row, int32_t slot, int32_t source, int32_t destination, int64_t now_ns) except -1

    # Handle one of its events, MIGRATE or TAKE_OFF.
    cdef int handle(self, int kind, int64_t payload, int64_t now_ns) except -1

    # Abort a move: the request stays at its source; if it has ended, its slot is freed.
    cdef int abort(self, Transit transit, int64_t now_ns) except -1

    cdef int _next_stage(self, Transit transit, int64_t now_ns) except -1
    cdef int _copy(self, Transit transit, int32_t num_blocks, int64_t now_ns) except -1
    cdef int _stage_over(self, Transit transit, int64_t now_ns) except -1
    cdef int _await_end(self, Transit transit, int64_t now_ns) except -1
    cdef int _end_iteration(self, int32_t source, int64_t now_ns) except -1
    cdef int _take_off(self, Transit transit, int64_t now_ns) except -1
    cdef int _depart(self, Transit transit, int64_t now_ns) except -1
    cdef int _hand_over(self, Transit transit, int64_t now_ns) except -1
    cdef int _send(self, Transit transit, int64_t now_ns) except -1
