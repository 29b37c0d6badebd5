"""Where requests come from: who comes next, and when.

The table of requests is fixed before a run, true lengths included; a source decides on the times. One that lets
arrivals wait for what happened to other requests hears of it by `ended`, and may then let `next_ns` come earlier.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.engine.operations.base cimport Operation


cdef class Source(Operation):
    cdef readonly int64_t next_ns       # when the next request comes, of those whose time is known; NEVER_NS: none is
    cdef readonly int64_t num_left      # requests that have not come yet, those whose time is not known included
    cdef readonly bint is_fixed         # all times are known beforehand, and requests come in order of the table

    # The request that comes at next_ns, which moves on to the one after it.
    cdef int32_t take(self) except -1 nogil
