"""Requests that are given while the cluster runs."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.domain.request cimport Request
from simulator.engine.sources.base cimport Source

cdef enum:
    FAR_OFF_NS = NEVER_NS - 1           # more may come: the run is not over


@cython.final
cdef class Fed(Source):
    """The rows of a workload, one after the other, each once it has been given.

    workload : simulator.workload.base.Workload; the caller fills in a row, then gives it.
    """

    cdef const Request* _requests       # borrowed from the workload
    cdef object _owner
    cdef int64_t _num_given, _num_taken

    def __init__(self, workload):
        cdef const Request[::1] requests = workload.requests
        self._owner = workload
        self._requests = &requests[0]
        self.num_left = len(requests)
        self.next_ns = FAR_OFF_NS
        self.is_fixed = True

    def give(self):
        """Let the next row arrive at its `arrival_ns`, which is later than that of the row before.

        Raises
        ------
        ValueError
            It is not later, or all rows have been given.
        """
        cdef int64_t row = self._num_given
        if row == self._num_taken + self.num_left:
            raise ValueError("all rows have been given")
        if row > 0 and self._requests[row].arrival_ns <= self._requests[row - 1].arrival_ns:
            raise ValueError(f"row {row} does not arrive after the row before it")
        self._num_given += 1
        self._look()

    @property
    def is_waiting(self):
        """Whether a row that was given has not arrived yet."""
        return self._num_taken < self._num_given

    cdef void _look(self) noexcept nogil:
        self.next_ns = self._requests[self._num_taken].arrival_ns if self._num_taken < self._num_given else FAR_OFF_NS

    cdef int32_t take(self) except -1 nogil:
        cdef int32_t row = <int32_t>self._num_taken
        self._num_taken += 1
        self.num_left -= 1
        self._look()
        return row
