"""One iteration: the memory of a batch."""
from libc.stdlib cimport free, malloc

from simulator.core.memory cimport resize


cdef int reserve_batch(Batch* batch, int32_t num_stages) except -1:
    batch.num_stages = num_stages
    if num_stages > 1:
        batch.visits = <StageVisit*>malloc(num_stages * sizeof(StageVisit))
        if batch.visits == NULL:
            raise MemoryError()
    return 0


cdef int grow_batch(Batch* batch, int32_t room) except -1 nogil:
    resize(&batch.entries, room * sizeof(Entry))
    resize(&batch.chunks, room * sizeof(Chunk))
    resize(&batch.preempted, room * sizeof(Preempted))
    batch.room = room
    return 0


cdef void insert_entry(Batch* batch, const Entry* entry) noexcept nogil:
    cdef int32_t i = batch.num_entries
    while i > 0 and batch.entries[i - 1].order > entry.order:
        batch.entries[i] = batch.entries[i - 1]
        i -= 1
    batch.entries[i] = entry[0]
    batch.num_entries += 1


cdef void free_batch(Batch* batch) noexcept nogil:
    free(batch.entries)
    free(batch.chunks)
    free(batch.preempted)
    free(batch.visits)
