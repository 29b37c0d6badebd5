"""Who could move from a replica, and where to."""
from libc.stdint cimport int32_t, int64_t

from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.replica.replica cimport Replica


# Requests of a replica whose run is settled: an array of Movable, and a list of their slots, -1 for those that wait.
# While the text of a running one is still computed, again or for the first time, its outputs do not count: else one
# that moves without KV could move on and on, and never get a token.
cdef tuple list_movables(Replica replica, dict moving)

# The routable replica behind the same gateway with the most free blocks, not one of `full`; -1: there is none.
cdef int32_t freest_replica(Fleet fleet, int32_t source, full, int64_t now_ns) except -2
