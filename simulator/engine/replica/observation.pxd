"""State of a replica as visible to gateways and results."""
from libc.stdint cimport int64_t

from simulator.domain.replica_state cimport ReplicaState
from simulator.engine.replica.replica cimport Replica


# Write the state of a replica before the events of `now_ns`. It has been advanced as far, and may be in the middle of a
# run. O(sequences that are no group members).
cdef int observe(Replica replica, int64_t now_ns, ReplicaState* state) except -1 nogil

# Return when an observation at `until_ns` is out of date if the replica does not act before, in the middle of a run;
# NEVER_NS: it stays valid. next_end_ns: for the whole state; next_blocks_ns: for the KV blocks in use.
cdef int64_t next_end_ns(Replica replica, int64_t until_ns) noexcept nogil
cdef int64_t next_blocks_ns(Replica replica, int64_t until_ns) noexcept nogil

# Return when hits in its prefix cache may change next if it does not act; requires Replica.keep_up.
cdef int64_t next_cache_change_ns(Replica replica) noexcept nogil
