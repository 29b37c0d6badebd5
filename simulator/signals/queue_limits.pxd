"""Limits of an API server on the requests in its hands, and the requests themselves."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.domain.request cimport Request


cdef enum:                      # further values of domain.journey.Cause; the codes of results.h5
    QUEUED_REQS = 9             # max_num_queued_reqs of its API server
    QUEUED_TOKENS = 10          # max_num_queued_tokens of its API server


@cython.final
cdef class QueueLimits:
    cdef const Request* _requests       # [row] of the workload, borrowed
    cdef int32_t* _visits               # [row] servers entered so far, borrowed; shared by all servers
    cdef object _owners                 # owners of the borrowed arrays
    cdef int64_t* _entries              # [size] requests that entered: visit << 32 | row; some may have left
    cdef readonly int64_t size
    cdef int64_t _room
    cdef readonly int64_t tokens        # prompt tokens of the entries that had no output when they were counted
    cdef int64_t _most, _most_tokens    # the limits; -1: none
    cdef int32_t _first, _last          # replicas [first, last) behind the server
    cdef readonly int8_t cause          # why the last request that `admits` refused was refused

    # Return whether one more request may enter; replicas are up to date.
    cdef bint admits(self) noexcept nogil

    # A request enters.
    cdef int add(self, int32_t row) except -1 nogil

    cdef void _forget_left(self) noexcept nogil
