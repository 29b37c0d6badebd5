"""Batches in flight: a ring of them, and when each passes the stages of the replica.

As many batches as pipeline stages are in flight at once, vLLM's batch queue; under async scheduling, one more. A batch
enters a stage when it has left the one before it, handed over, and its predecessor has left this one; batches keep
their order. Source: vLLM, vllm/v1/engine/core.py, EngineCore.step_with_batch_queue; vllm/config/vllm.py,
VllmConfig.max_concurrent_batches.

With both, a sequence has a turn every `stride` batches, as many as stages. The first stage takes a batch in only when
the tokens of the one that many before it are back from the last stage, if anybody goes on with one of them. A batch of
nothing takes a place in the queue, too, as long as there are requests: the queue is full when the batch formed last is
`stride` behind the one that executes. It is not kept here, its number alone counts. Source: vLLM 0.32.0 with its newer
model runner, AsyncScheduler (next_decode_eligible_step); vllm/v1/worker/gpu/pp_utils.py, PPHandler. Not simulated: the
millisecond that vLLM sleeps after a batch of nothing, and that a batch whose tokens are of no use any more, since who
wanted them has given up or was preempted, holds up nobody.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.domain.iteration cimport Batch
from simulator.latency.base cimport LatencyModel


cdef struct Pipeline:
    Batch* batches              # [depth] a ring, and a spare one
    int32_t depth               # batches in flight at most
    int32_t num_stages
    int32_t stride              # see above; 0: batches are not numbered
    int32_t num_blank           # with stride: batches of nothing formed last, since anything else happened
    int32_t first               # place of the batch that ends first
    int32_t num_in_flight       # batches from there on, in the order in which they were scheduled; 0: idle
    int64_t last_end_ns         # when the last batch that is not in flight any more ended, or somebody left without one
    int64_t* durations_ns       # [num_stages] scratch; NULL: one stage


# Memory for the batches of so many stages, which are empty.
cdef int reserve_pipeline(Pipeline* pipeline, int32_t num_stages, bint is_async) except -1
cdef void free_pipeline(Pipeline* pipeline) noexcept nogil

# Several stages: the batch in vacant_place() passes them behind the others.
cdef void pass_stages(Pipeline* pipeline, Batch* batch, LatencyModel latency) noexcept nogil


# The accelerator stood still for `pause_ns` from `since_ns` on: what was in flight ends later.
cdef void put_off(Pipeline* pipeline, int64_t since_ns, int64_t pause_ns) noexcept nogil


cdef inline Batch* oldest(Pipeline* pipeline) noexcept nogil:
    return &pipeline.batches[pipeline.first]


# The batch that ends `number` after the oldest; number < num_in_flight.
cdef inline Batch* batch_at(Pipeline* pipeline, int32_t number) noexcept nogil:
    return &pipeline.batches[(pipeline.first + number) % pipeline.depth]


# One that is never in flight.
cdef inline Batch* spare_batch(Pipeline* pipeline) noexcept nogil:
    return &pipeline.batches[pipeline.depth]


# The batch to be scheduled next; num_in_flight < depth.
cdef inline Batch* vacant_place(Pipeline* pipeline) noexcept nogil:
    return &pipeline.batches[(pipeline.first + pipeline.num_in_flight) % pipeline.depth]


# The batch in flight that was scheduled last; num_in_flight > 0.
cdef inline Batch* newest(Pipeline* pipeline) noexcept nogil:
    return &pipeline.batches[(pipeline.first + pipeline.num_in_flight - 1) % pipeline.depth]


# With stride: there is no room for another batch after number `step`; where none executes, nothing can be scheduled.
cdef inline bint is_full(Pipeline* pipeline, int64_t step) noexcept nogil:
    if pipeline.num_in_flight == 0:
        return pipeline.num_blank >= pipeline.stride
    return step - oldest(pipeline).step >= pipeline.stride


# Work out when the batch in vacant_place() executes. It counts as in flight only when num_in_flight is raised.
# `pause_ns`: how long it takes without tokens; <= 0: as the model says.
cdef inline void time_batch(Pipeline* pipeline, Batch* batch, LatencyModel latency, int64_t pause_ns) noexcept nogil:
    cdef int64_t free_ns = batch.start_ns       # when the accelerator is free
    if pipeline.num_stages > 1:
        pass_stages(pipeline, batch, latency)
        return
    if pipeline.num_in_flight > 0:
        free_ns = newest(pipeline).end_ns
    batch.duration_ns = pause_ns
    if pause_ns <= 0 or batch.shape.num_sequences > 0:
        batch.duration_ns = latency.iteration_ns(&batch.shape)
    if batch.stall_ns > 0:
        batch.duration_ns = batch.stall_ns + (batch.duration_ns if batch.shape.num_sequences > 0 else 0)
    batch.end_ns = free_ns + batch.duration_ns


# Busy time charged to the oldest batch: from the later of its start and its predecessor's end to its own end. Summed
# over batches it is the time during which the replica executed something.
cdef inline int64_t busy_ns(const Pipeline* pipeline, const Batch* batch) noexcept nogil:
    if pipeline.num_stages > 1:
        return batch.end_ns - max(pipeline.last_end_ns, batch.visits[0].start_ns)
    return batch.duration_ns


# The oldest batch has ended. Or the step of no tokens that took its place.
cdef inline void retire(Pipeline* pipeline) noexcept nogil:
    pipeline.last_end_ns = pipeline.batches[pipeline.first].end_ns
    take_out(pipeline)


cdef inline void take_out(Pipeline* pipeline) noexcept nogil:
    pipeline.first = pipeline.first + 1 if pipeline.first + 1 < pipeline.depth else 0
    pipeline.num_in_flight -= 1
