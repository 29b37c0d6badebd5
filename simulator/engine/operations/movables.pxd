"""Requests of a replica that could move, and destinations for them."""
from libc.stdint cimport int32_t, int64_t

from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.replica.replica cimport Replica


# Requests of a replica with a settled run: an array of Movable, and a list of their slots, -1 for waiting ones. While
# the text of a running one is still computed, again or for the first time, its outputs do not count: otherwise a
# request that moves without KV could move on and on, and never get a token.
cdef tuple list_movables(Replica replica, dict moving)

# Return the routable replica behind the same gateway with the most free blocks, not one of `full`; -1: none.
cdef int32_t freest_replica(Fleet fleet, int32_t source, full, int64_t now_ns) except -2
