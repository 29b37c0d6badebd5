"""Batches in flight: their memory, and their times in several pipeline stages."""
from libc.stdlib cimport calloc, free, malloc

from simulator.core.clock cimport NEVER_NS
from simulator.domain.iteration cimport StageVisit, free_batch, reserve_batch


cdef int reserve_pipeline(Pipeline* pipeline, int32_t num_stages, bint is_async) except -1:
    cdef int32_t depth = num_stages + is_async, i
    pipeline.batches = <Batch*>calloc(depth + 1, sizeof(Batch))
    if pipeline.batches == NULL:
        raise MemoryError()
    pipeline.depth, pipeline.num_stages = depth, num_stages
    pipeline.turn_interval = num_stages if is_async and num_stages > 1 else 0
    for i in range(depth + 1):
        reserve_batch(&pipeline.batches[i], num_stages)
    if num_stages > 1:
        pipeline.durations_ns = <int64_t*>malloc(num_stages * sizeof(int64_t))
        if pipeline.durations_ns == NULL:
            raise MemoryError()
    return 0


cdef void free_pipeline(Pipeline* pipeline) noexcept nogil:
    cdef int32_t i
    for i in range(pipeline.depth + 1 if pipeline.batches != NULL else 0):
        free_batch(&pipeline.batches[i])
    free(pipeline.batches)
    free(pipeline.durations_ns)


cdef inline bint waits_for_tokens(Pipeline* pipeline, const Batch* batch) noexcept nogil:
    """Return whether the first stage still lacks its input tokens: those of the batch `turn_interval` before."""
    return (pipeline.turn_interval > 0 and pipeline.num_in_flight > 0 and oldest(pipeline).feeds
            and batch.step - oldest(pipeline).step == pipeline.turn_interval)


cdef void pass_stages(Pipeline* pipeline, Batch* batch, LatencyModel latency) noexcept nogil:
    cdef const Batch* before = newest(pipeline) if pipeline.num_in_flight > 0 else NULL
    cdef int64_t ready_ns = batch.start_ns
    cdef int32_t i
    if waits_for_tokens(pipeline, batch):
        ready_ns = max(ready_ns, oldest(pipeline).end_ns)
    latency.stage_durations_ns(&batch.shape, pipeline.durations_ns)
    for i in range(pipeline.num_stages):
        if before != NULL:
            ready_ns = max(ready_ns, before.visits[i].end_ns)
        batch.visits[i].start_ns = ready_ns
        ready_ns += pipeline.durations_ns[i]
        batch.visits[i].end_ns = ready_ns
    batch.end_ns = ready_ns
    batch.duration_ns = ready_ns - batch.visits[0].start_ns


cdef void put_off(Pipeline* pipeline, int64_t since_ns, int64_t pause_ns) noexcept nogil:
    cdef int32_t i
    for i in range(pipeline.num_in_flight):
        put_off_batch(&pipeline.batches[(pipeline.first + i) % pipeline.depth], since_ns, pause_ns, i == 0)


cdef void put_off_batch(Batch* batch, int64_t since_ns, int64_t pause_ns, bint is_executing) noexcept nogil:
    """Let a batch that was in flight at `since_ns` end later."""
    cdef StageVisit* visit
    cdef int32_t i
    batch.end_ns += pause_ns if batch.end_ns < NEVER_NS else 0      # in lock step, a batch behind it has no known end
    if batch.visits == NULL:
        batch.duration_ns += pause_ns if is_executing else 0
        return
    for i in range(batch.num_stages):
        visit = &batch.visits[i]
        visit.start_ns += pause_ns if visit.start_ns > since_ns else 0
        visit.end_ns += pause_ns if visit.end_ns >= since_ns else 0
    batch.duration_ns = batch.end_ns - batch.visits[0].start_ns
