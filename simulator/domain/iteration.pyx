"""One iteration: the memory of a batch."""
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc

from simulator.domain.batch cimport Chunk


cdef int reserve_batch(Batch* batch, size_t num_sequences, int32_t num_stages) except -1:
    batch.num_stages = num_stages
    batch.entries = <Entry*>malloc(num_sequences * sizeof(Entry))
    batch.chunks = <Chunk*>malloc(num_sequences * sizeof(Chunk))
    batch.preempted = <Preempted*>malloc(num_sequences * sizeof(Preempted))
    if batch.entries == NULL or batch.chunks == NULL or batch.preempted == NULL:
        raise MemoryError()
    if num_stages > 1:
        batch.visits = <StageVisit*>malloc(num_stages * sizeof(StageVisit))
        if batch.visits == NULL:
            raise MemoryError()
    return 0


cdef void free_batch(Batch* batch) noexcept nogil:
    free(batch.entries)
    free(batch.chunks)
    free(batch.preempted)
    free(batch.visits)
