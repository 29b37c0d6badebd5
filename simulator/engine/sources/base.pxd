"""Base of the sources of requests: the next request, and its arrival time.

The table of requests is fixed before a run, true lengths included; a source decides on the times. A source with
arrivals that wait for other requests is notified by `ended`, and may then move `next_ns` earlier.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.engine.operations.base cimport Operation


cdef class Source(Operation):
    cdef readonly int64_t next_ns       # when the next request arrives, among those with a known time; NEVER_NS: none
    cdef readonly int64_t num_left      # requests that have not arrived yet, including those without a known time
    cdef readonly bint is_fixed         # all times are known beforehand, and requests arrive in order of the table

    # Return the request that arrives at next_ns, and advance next_ns to the one after it.
    cdef int32_t take(self) except -1 nogil
