"""What a replica reports when it is asked."""
from libc.stdint cimport int64_t

from simulator.domain.replica_state cimport ReplicaState
from simulator.engine.replica.replica cimport Replica


# Write how a replica stands at `now_ns` (what happens at that very instant is still to come). It has been advanced as
# far, and may be in the middle of a run. O(sequences that are no members).
cdef int observe(Replica replica, int64_t now_ns, ReplicaState* state) except -1 nogil

# When what was observed at `until_ns` is out of date if the replica does not act before, in the middle of a run;
# NEVER_NS: it stays as it is. All of it; the KV blocks in use.
cdef int64_t next_end_ns(Replica replica, int64_t until_ns) noexcept nogil
cdef int64_t next_blocks_ns(Replica replica, int64_t until_ns) noexcept nogil

# The same for what is found in its prefix cache, of a replica that has been kept up: not before.
cdef int64_t next_cache_change_ns(Replica replica) noexcept nogil
