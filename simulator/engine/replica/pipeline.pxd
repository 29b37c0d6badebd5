"""Batches in flight: a ring of batches, and their times in the stages of the replica.

As many batches as pipeline stages are in flight at once, vLLM's batch queue; under async scheduling, one more. A batch
enters a stage when it has left the stage before, and its predecessor has left this one; batches keep
their order. Source: vLLM, vllm/v1/engine/core.py, EngineCore.step_with_batch_queue; vllm/config/vllm.py,
VllmConfig.max_concurrent_batches.

With both, a sequence has a turn every `turn_interval` batches, as many as stages. The first stage takes a batch only
when the batch `turn_interval` before has returned its tokens from the last stage, if a sequence continues with one of
its tokens. An empty batch takes a place in the queue, too, as long as there are requests: the queue is full when the
batch formed last is `turn_interval` behind the one that executes. It is not kept here, only its number counts. Source:
vLLM 0.32.0 with its newer model runner, AsyncScheduler (next_decode_eligible_step); vllm/v1/worker/gpu/pp_utils.py,
PPHandler. Not simulated: the millisecond that vLLM sleeps after an empty batch; and that a batch delays no other if its
tokens are useless, as their requests were given up or preempted.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.domain.iteration cimport Batch
from simulator.latency.base cimport LatencyModel


cdef struct Pipeline:
    Batch* batches              # [depth] a ring, and a spare one
    int32_t depth               # batches in flight at most
    int32_t num_stages
    int32_t turn_interval       # see above; 0: batches are not numbered
    int32_t num_blank           # with turn_interval: number of empty batches formed in a row up to now
    int32_t first               # index of the batch that ends first
    int32_t num_in_flight       # batches from there on, in order of scheduling; 0: idle
    int64_t last_end_ns         # when the last batch out of flight ended, or a request left without a batch
    int64_t* durations_ns       # [num_stages] scratch; NULL: one stage


# Allocate memory for the batches of `num_stages` stages, all empty.
cdef int reserve_pipeline(Pipeline* pipeline, int32_t num_stages, bint is_async) except -1
cdef void free_pipeline(Pipeline* pipeline) noexcept nogil

# Several stages: compute the times in each of the batch in vacant_place(), behind the others.
cdef void pass_stages(Pipeline* pipeline, Batch* batch, LatencyModel latency) noexcept nogil


# The accelerator was halted for `pause_ns` from `since_ns` on: batches in flight end later.
cdef void put_off(Pipeline* pipeline, int64_t since_ns, int64_t pause_ns) noexcept nogil


cdef inline Batch* oldest(Pipeline* pipeline) noexcept nogil:
    return &pipeline.batches[pipeline.first]


# The batch that ends `number` after the oldest; number < num_in_flight.
cdef inline Batch* batch_at(Pipeline* pipeline, int32_t number) noexcept nogil:
    return &pipeline.batches[(pipeline.first + number) % pipeline.depth]


# Return a batch that is never in flight.
cdef inline Batch* spare_batch(Pipeline* pipeline) noexcept nogil:
    return &pipeline.batches[pipeline.depth]


# Return the batch to be scheduled next; num_in_flight < depth.
cdef inline Batch* vacant_place(Pipeline* pipeline) noexcept nogil:
    return &pipeline.batches[(pipeline.first + pipeline.num_in_flight) % pipeline.depth]


# Return the batch in flight that was scheduled last; num_in_flight > 0.
cdef inline Batch* newest(Pipeline* pipeline) noexcept nogil:
    return &pipeline.batches[(pipeline.first + pipeline.num_in_flight - 1) % pipeline.depth]


# With turn_interval: return whether there is room for no batch after number `step`; if none executes, for none at all.
cdef inline bint is_full(Pipeline* pipeline, int64_t step) noexcept nogil:
    if pipeline.num_in_flight == 0:
        return pipeline.num_blank >= pipeline.turn_interval
    return step - oldest(pipeline).step >= pipeline.turn_interval


# Compute when the batch in vacant_place() executes. It counts as in flight only when num_in_flight is raised.
# `pause_ns`: its duration without tokens; <= 0: that of the model.
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


# The oldest batch has ended, or the step without tokens in its place.
cdef inline void retire(Pipeline* pipeline) noexcept nogil:
    pipeline.last_end_ns = pipeline.batches[pipeline.first].end_ns
    take_out(pipeline)


cdef inline void take_out(Pipeline* pipeline) noexcept nogil:
    pipeline.first = pipeline.first + 1 if pipeline.first + 1 < pipeline.depth else 0
    pipeline.num_in_flight -= 1
