"""One iteration: the scheduler's decision, executed by the engine."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.domain.batch cimport BatchShape, Chunk


# Members are decoding sequences that a scheduler advances in bulk, one token an iteration; see scheduling/base.pxd.

cdef extern from *:
    const int64_t NO_TOKEN "INT64_MIN / 2"

cdef struct Entry:              # a scheduled sequence that is not a member
    int64_t order               # its place in the running list, see Sequence
    int32_t slot
    int32_t row                 # the request
    int32_t tokens              # computed by this iteration, >= 1
    int32_t drafts              # drafts to be verified among the tokens
    int8_t is_partial           # ends before the end of the text: samples nothing
    int8_t is_admission         # this is its first iteration since it was admitted


cdef struct Preempted:          # a sequence that lost its place and its blocks
    int32_t slot                # that it had
    int32_t row                 # the request
    int64_t late_ns             # member: see Sequence; where batches overlap: time since its last token, less the time
                                # the group stood still; NO_TOKEN: no token as a member yet
    int32_t freed_blocks        # KV blocks that are free since then
    int8_t was_member
    int8_t gave_way             # for a waiting request, not because blocks ran out


cdef struct StageVisit:         # of a batch, at a pipeline stage
    int64_t start_ns            # it enters
    int64_t end_ns              # it has left: the next stage has its hidden states


cdef struct Batch:              # one iteration; owned by the engine, filled in by the scheduler
    BatchShape shape
    int64_t start_ns            # when it was scheduled
    int64_t step                # its number among all that were formed, where a scheduler counts them; else 0
    int64_t stall_ns            # extra time, because it waits for KV; else 0
    int64_t end_ns              # when its results are there; set by the engine, like all down to used_blocks
    int64_t duration_ns         # of its execution, which may begin after start_ns (others were in flight already)
    StageVisit* visits          # [num_stages] in order; NULL where the replica has one stage
    int32_t waiting             # requests after scheduling; also the two below
    int32_t running
    int32_t used_blocks         # the null block not counted
    int32_t room                # capacity in sequences of the three arrays below: all that run
    Entry* entries              # [num_entries] in scheduled order; members that part while it is in flight become some
    Chunk* chunks               # [shape.num_chunks] in scheduled order
    Preempted* preempted        # [num_preempted] in order
    int32_t num_entries
    int32_t num_preempted
    int32_t num_members         # members that advance by one token
    int32_t num_starved         # members that do not
    int32_t group               # the group of its members, see scheduling/base.pxd
    int32_t num_stages          # pipeline stages of the replica
    int64_t launch_ns           # with a tier that copies: when it could be launched, once the copies were done that it
                                # waited for
    int64_t num_done            # with a tier: copies done by then, so far; num_polled: transfers
    int64_t num_polled
    int8_t stands_still         # no member has a turn, and the group has counted no iteration: see Scheduler.pass_over
    int8_t feeds                # where steps are counted: a sequence continues with a token that it brings


# Make ready an empty batch on its way through `num_stages` stages, without room for sequences.
cdef int reserve_batch(Batch* batch, int32_t num_stages) except -1

# Give it room for `room` sequences; its content stays. -1 without memory.
cdef int grow_batch(Batch* batch, int32_t room) except -1 nogil

# Insert an entry by its order; there is room.
cdef void insert_entry(Batch* batch, const Entry* entry) noexcept nogil

# Give its memory back.
cdef void free_batch(Batch* batch) noexcept nogil
