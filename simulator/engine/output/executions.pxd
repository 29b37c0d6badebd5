"""Execution time and waits of requests, added up batch by batch."""
from libc.stdint cimport int64_t
cimport cython

from simulator.domain.iteration cimport Batch


cdef struct Execution:          # of a request, `records.EXECUTION`
    int64_t execution_ns        # in the stages of its batches
    int64_t preempted_ns        # between the end of a stage and the begin of the next that it enters
    int64_t first_ns            # it entered its first stage; -1: none yet
    int64_t left_ns             # it left its last stage; -1: none yet


@cython.final
cdef class Executions:
    cdef readonly object table          # structured array (requests,), records.EXECUTION
    cdef Execution* _rows               # the rows of `table`

    # Add a batch that has ended, without members of a group (bulk decode).
    cdef void add(self, const Batch* batch) noexcept nogil
