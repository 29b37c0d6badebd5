"""A drawn trace: rows come in chunks, and go when all requests of a chunk have ended."""
from simulator.core.clock cimport NEVER_NS
from simulator.engine.replica.replica cimport Replica


cdef class Chunked(Source):
    """The requests of a workload with `chunks`, in order of their arrival.

    workload : simulator.workload.base.Workload.
    recorder : of the run; its gaps between tokens are summed up with the chunks.
    replicas : list of Replica that serve the requests.
    """

    def __init__(self, workload, Recorder recorder, replicas):
        cdef Request[::1] requests = workload.requests
        self._owner, self._chunks = workload, workload.chunks
        self._recorder, self._replicas = recorder, replicas
        self._num_requests = self.num_left = len(requests)
        self._requests = &requests[0]
        self.is_fixed = True
        self._renew()
        self.next_ns = self._requests[0].arrival_ns

    cdef int _renew(self) except -1 nogil:
        """Draw a chunk; before, give up rows that no replica can read any more.

        An iteration under way may hold a request that has ended, if engines schedule ahead of the last output. So rows
        stay until each such iteration began after the rows were found to be ended.
        """
        with gil:
            self._chunks.give_up(self._first_open_ns())
            self._chunks.sum_up(self._recorder.gaps)
            self._num_drawn = self._chunks.draw()
        return 0

    cdef int64_t _first_open_ns(self) except -1:
        cdef int64_t first_ns = NEVER_NS
        cdef Replica replica
        for replica in self._replicas:
            first_ns = min(first_ns, replica.first_open_ns())
        return first_ns

    cdef int32_t take(self) except -1 nogil:
        cdef int64_t row = self._num_requests - self.num_left
        self.num_left -= 1
        if self.num_left == 0:
            self.next_ns = NEVER_NS
            return <int32_t>row
        if row + 1 == self._num_drawn:
            self._renew()
        self.next_ns = self._requests[row + 1].arrival_ns
        return <int32_t>row
