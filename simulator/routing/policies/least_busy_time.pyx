"""`least_busy_time`: the replica that was busy for the least time of late."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.core.clock cimport ns_from_s
from simulator.routing.parts.scored_router cimport ScoredRouter


class LeastBusyTimeParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The least share of time with requests wins, drawn of several.

    The share is that of the last whole period of period_s, on the gateway's own account of requests in flight.
    Source: least-busy-time and least-utilization of vllm-project/aibrix at e3e10f9e (pkg/plugins/gateway/algorithms).
    Both read a ratio of busy time that the engine measures; how long the engine takes it over is not known, and not
    which part of an iteration counts: here it is all time with requests.
    """

    period_s: Annotated[float, Meta(gt=0, le=1e6, description="length of the periods")] = 1.0


cdef struct Busy:               # a replica
    int64_t noted_ns            # up to here its time is counted
    int64_t busy_ns             # so far in the period of noted_ns
    int64_t last_ns             # in the period before
    int32_t requests            # in flight
    int32_t spare


@cython.final
cdef class LeastBusyTime(ScoredRouter):
    """The replica that was busy for the least time."""

    Parameters = LeastBusyTimeParameters

    cdef int64_t _period_ns
    cdef Busy* _busy            # [replica]

    def __cinit__(self, parameters, context):
        self._busy = <Busy*>calloc(self.num_replicas, sizeof(Busy))
        if self._busy == NULL:
            raise MemoryError()
        self._period_ns = max(ns_from_s(parameters.period_s), 1)

    def __dealloc__(self):
        free(self._busy)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t i
        for i in range(self.num_replicas):
            if self.view.accounts[i].is_routable:
                scores[i] = -<double>self._note(i, now_ns).last_ns / self._period_ns
            else:
                scores[i] = -INFINITY
        return 0

    cdef Busy* _note(self, int32_t replica, int64_t now_ns) noexcept nogil:
        """Count the time of a replica up to an instant."""
        cdef Busy* busy = &self._busy[replica]
        cdef int64_t begin_ns = now_ns // self._period_ns * self._period_ns      # of the period of this instant
        cdef bint is_busy = busy.requests > 0
        if busy.noted_ns < begin_ns:
            if busy.noted_ns >= begin_ns - self._period_ns:
                busy.last_ns = busy.busy_ns + (begin_ns - busy.noted_ns if is_busy else 0)
            else:               # nothing changed in the whole period before
                busy.last_ns = self._period_ns if is_busy else 0
            busy.busy_ns, busy.noted_ns = 0, begin_ns
        busy.busy_ns += now_ns - busy.noted_ns if is_busy else 0
        busy.noted_ns = now_ns
        return busy

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self._note(replica, now_ns).requests += 1
        return 0

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self._note(replica, now_ns).requests -= 1
        return 0
