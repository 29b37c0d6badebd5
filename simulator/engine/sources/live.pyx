"""The next request and its time for load on a real server, in wall-clock time.

The caller reports the end of each request. The rules are those of `run`, since the sources are shared with it.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.domain.journey cimport LEG_COMPLETED, LEG_ENDED
from simulator.domain.request cimport COMPLETED, FAILED, REJECTED, RUNNING, TIMED_OUT, Request
from simulator.engine.output.recorder cimport Recorder
from simulator.engine.sources.base cimport Source
from simulator.engine.sources.scripted import Scripted
from simulator.engine.sources.trace import Trace

import numpy as np


@cython.final
cdef class Live:
    """The next request, and its arrival time, while a server answers.

    workload : simulator.workload.base.Workload; its `requests`, and with a script `demands` and `scheduled_ns`, are
        written to.
    """

    cdef Source _source
    cdef Request* _requests             # borrowed from the workload
    cdef object _owner, _script
    cdef int64_t _num_requests

    def __init__(self, workload):
        cdef Request[::1] requests = workload.requests
        self._owner, self._num_requests, self._script = workload, len(requests), workload.script
        self._requests = &requests[0] if self._num_requests > 0 else NULL
        if workload.script is None or self._num_requests == 0:
            self._source = Trace(workload)
        else:       # last tokens are not seen before a request ends
            self._source = Scripted(workload, Recorder(), np.zeros(self._num_requests, np.int64))
        self._source.start()

    @property
    def next_ns(self):
        """When the next request arrives, among those with a known time; None: none."""
        return None if self._source.next_ns == NEVER_NS else self._source.next_ns

    @property
    def num_left(self):
        """Number of requests that may still arrive."""
        return self._source.num_left

    @property
    def is_fixed(self):
        """Whether all times are known beforehand, and requests arrive in order of the table."""
        return self._source.is_fixed

    def ran_dry(self):
        """Return whether a load bounded by its end alone had a free slot before that, and no request left."""
        groups = () if self._script is None else self._script.groups
        used = self._source.used() if groups else ()
        return any(group.is_open_ended and is_dry for group, (_, is_dry) in zip(groups, used, strict=True))

    def take(self):
        """Return the row of the request that arrives at `next_ns`, which moves on to the one after it.

        Raises
        ------
        ValueError
            No request has a known time.
        """
        cdef int32_t row
        if self._source.next_ns == NEVER_NS:
            raise ValueError("no request is known to come")
        row = self._source.take()
        self._requests[row].status = RUNNING
        return row

    def ended(self, int32_t row, int status, int64_t now_ns):
        """Report that a request that was taken has ended, which may release others.

        status : records.COMPLETED, REJECTED, TIMED_OUT or FAILED. now_ns : of the clock of `next_ns`.

        Raises
        ------
        ValueError
            The request does not run, or the status is no end.
        """
        if not 0 <= row < self._num_requests or self._requests[row].status != RUNNING:
            raise ValueError(f"request {row} does not run")
        if status not in (COMPLETED, REJECTED, TIMED_OUT, FAILED):
            raise ValueError(f"no status with which a request ends: {status}")
        self._requests[row].status = status
        if status == COMPLETED:
            self._requests[row].completed_ns = now_ns
        self._source.ended(row, LEG_COMPLETED if status == COMPLETED else LEG_ENDED, now_ns)
