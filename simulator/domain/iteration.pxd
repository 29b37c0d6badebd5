"""One iteration: what a scheduler decides and the engine carries out."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.domain.batch cimport BatchShape, Chunk


cdef struct Entry:              # a sequence in a batch that is not a member
    int32_t slot
    int32_t row
    int32_t tokens
    int32_t drafts              # of these, drafts
    int8_t is_partial           # ends before the end of the text: samples nothing
    int8_t is_admission


cdef struct Preempted:
    int32_t slot
    int32_t row
    int64_t late_ns
    int8_t was_member


cdef struct Batch:              # one iteration; owned by the engine, filled in by the scheduler
    BatchShape shape
    int64_t start_ns            # when it was scheduled
    int64_t end_ns              # when its results are there; set by the engine, like the three below
    int64_t duration_ns
    int32_t waiting             # as they stood after scheduling
    int32_t running
    int32_t used_blocks
    Entry* entries              # in scheduled order; room for every running sequence
    Chunk* chunks               # likewise
    Preempted* preempted        # in order
    int32_t num_entries
    int32_t num_preempted
    int32_t num_members         # members that advance by one token
    int32_t num_starved         # members that do not


# Give an empty batch room for `num_sequences` running sequences.
cdef int reserve_batch(Batch* batch, size_t num_sequences) except -1

cdef void free_batch(Batch* batch) noexcept nogil
