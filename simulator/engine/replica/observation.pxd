"""What a replica reports when it is asked."""
from libc.stdint cimport int64_t

from simulator.domain.replica_state cimport ReplicaState
from simulator.engine.replica.replica cimport Replica


# Write how a replica stands at `now_ns` (what happens at that very instant is still to come). It has been advanced as
# far, and may be in the middle of a run. O(sequences that are no members).
cdef int observe(Replica replica, int64_t now_ns, ReplicaState* state) except -1 nogil
