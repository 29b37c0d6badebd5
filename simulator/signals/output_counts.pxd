"""Output tokens of requests that a gateway has seen: it passes each token on to the client."""
from libc.stdint cimport int32_t, int64_t

from simulator.domain.request cimport Request


cdef class OutputCounts:
    cdef const Request* _requests       # [row] borrowed
    cdef object _owner                  # of _requests
    cdef public bint is_requested          # some policy reads it; set by its constructor

    # `outputs` answers as of this instant from now on.
    cdef void look(self, int64_t now_ns) noexcept nogil

    # Output tokens of a request so far. The engine overrides both; a plain object reads the record.
    cdef int32_t outputs(self, int32_t row) except -1 nogil
