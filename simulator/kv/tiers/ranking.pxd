"""Uses of chunks, as requests of a tier report them to its eviction policy."""
from libc.stdint cimport int32_t, int64_t

from simulator.kv.content cimport Content
from simulator.kv.tiers.chunk_table cimport ChunkTable
from simulator.kv.tiers.eviction cimport EvictionPolicy
from simulator.kv.tiers.lru_by_request cimport LruByRequest
from simulator.kv.tiers.users cimport Part, User


cdef enum:
    RANKED = 16                 # beside the uses in Use: the policy knows of the use


# The mark of a request that uses a chunk.
cdef int32_t mark_of(LruByRequest policy, User* user) except -1 nogil

# A request uses listed chunks begin .. end - 1 of a group: report those that it uses for the first time.
# -> `first`, `step`: the order of chunk i is first + i * step, see LruByRequest.used.
cdef int rank_uses(LruByRequest policy, User* user, Part* part, int32_t begin, int32_t end, int64_t first,
                   int64_t step) except -1 nogil

# The element of the run at `begin` that begins there and does not reach beyond `end`. -> `policy`: None, it ranks none.
cdef int32_t cut_out(ChunkTable table, LruByRequest policy, int32_t row, int32_t begin, int32_t end) except 0 nogil

# A request that has left closes the runs of its private text, from the last to the first.
cdef void close_runs(EvictionPolicy policy, int32_t row, Content content) noexcept nogil
