"""A drawn trace: rows come in chunks, and go when all requests of a chunk have ended."""
from libc.stdint cimport int32_t, int64_t

from simulator.domain.request cimport Request
from simulator.engine.output.recorder cimport Recorder
from simulator.engine.sources.base cimport Source


cdef class Chunked(Source):
    cdef Request* _requests             # borrowed from the workload
    cdef object _owner, _chunks
    cdef Recorder _recorder
    cdef list _replicas
    cdef int64_t _num_requests
    cdef int64_t _num_drawn             # leading rows that have been drawn

    # Draw a chunk; before, give up rows that no replica can read any more.
    cdef int _renew(self) except -1 nogil
    cdef int64_t _first_open_ns(self) except -1
