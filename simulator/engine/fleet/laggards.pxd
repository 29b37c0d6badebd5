"""Replicas that lag behind the clock, brought up to date for an occasional reader."""
from libc.stdint cimport int64_t
cimport cython

from simulator.core.wake_heap cimport WakeHeap
from simulator.engine.fleet.lookahead cimport Lookahead
from simulator.engine.replica.departures cimport Departures
from simulator.engine.replica.replica cimport Replica


@cython.final
cdef class Laggards:
    cdef Lookahead* lookaheads      # [replica]
    cdef WakeHeap _wakes            # the fleet's
    cdef Departures _departures

    # Let a replica do all that is due by now, as if it had been kept up to date.
    cdef int bring_up(self, Replica replica, int64_t now_ns) except -1 nogil
