"""How long requests executed, and waited between, added up batch by batch."""
from libc.stdint cimport int64_t
cimport cython

from simulator.domain.iteration cimport Batch


cdef struct Execution:          # of a request, `records.EXECUTION`
    int64_t execution_ns        # in the stages of its batches
    int64_t preempted_ns        # between a stage that it left and the next that it entered
    int64_t first_ns            # it entered the first; -1: none yet, likewise below
    int64_t left_ns             # it left the last


@cython.final
cdef class Executions:
    cdef readonly object table          # structured array (requests,), records.EXECUTION
    cdef Execution* _rows               # of it

    # A batch has ended, of which no sequence is a member of a group.
    cdef void add(self, const Batch* batch) noexcept nogil
