"""A trace: requests arrive at the times of the table."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.domain.request cimport Request
from simulator.engine.sources.base cimport Source


@cython.final
cdef class Trace(Source):
    """The requests of a workload, in order of their arrival.

    workload : simulator.workload.base.Workload.
    """

    cdef const Request* _requests       # borrowed from the workload
    cdef object _owner
    cdef int64_t _num_requests

    def __init__(self, workload):
        cdef const Request[::1] requests = workload.requests
        self._owner = workload
        self._num_requests = self.num_left = len(requests)
        self.is_fixed = True
        if self.num_left > 0:
            self._requests = &requests[0]
            self.next_ns = self._requests[0].arrival_ns

    cdef int32_t take(self) except -1 nogil:
        cdef int32_t row = <int32_t>(self._num_requests - self.num_left)
        self.num_left -= 1
        self.next_ns = self._requests[row + 1].arrival_ns if self.num_left > 0 else NEVER_NS
        return row
