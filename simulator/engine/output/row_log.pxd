"""Rows of iterations not passed on yet, each as its difference to the row before at the same replica and stage."""
from libc.stdint cimport int32_t, int64_t, uint8_t
cimport cython

from simulator.domain.tables cimport IterationRow


cdef struct RowQueue:           # rows of one pipeline stage of one replica, in order of start
    IterationRow head           # the next to be passed on
    IterationRow last           # recorded last
    int64_t head_slope          # context tokens that the row gained over the one before; also last_slope
    int64_t last_slope
    int64_t num_passed          # rows passed on: the number of the head among those of the stage
    uint8_t* bytes              # [room] the differences of the rows behind the head
    int64_t begin               # of the first difference among the bytes
    int64_t end                 # of the last
    int64_t room
    RowQueue* following         # of the next stage; NULL: it has no row yet
    bint has_head


# Make the row behind the head the head, if there is one.
cdef void pass_head(RowQueue* queue) noexcept nogil


@cython.final
cdef class RowLog:
    cdef RowQueue** queues              # [num_replicas] of the first stage; NULL: no row yet
    cdef int64_t num_replicas
    cdef readonly int64_t held_bytes    # of all differences

    # Record a row; those of a replica and stage come in order of start.
    cdef int add(self, const IterationRow* row) except -1 nogil

    # Record an iteration that does the same as the last one of this replica, which has one stage, and begins at its
    # end. It was scheduled then, or, if it `overlaps`, when the last one began.
    cdef int repeat(self, int32_t replica, int64_t duration_ns, int64_t context_tokens, int32_t used_blocks,
                    bint overlaps) except -1 nogil

    # Return the queue of a stage of a replica.
    cdef RowQueue* _queue(self, int32_t replica, int32_t stage) except NULL nogil

    # Count `held_bytes` anew, after rows were passed on.
    cdef void count_bytes(self) noexcept nogil

    cdef int _grow(self, int64_t num_replicas) except -1 nogil
