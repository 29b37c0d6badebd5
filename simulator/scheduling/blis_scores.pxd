"""Urgency by age, with a head start for classes, as BLIS's priority policies score it."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.request cimport Demand, Request
from simulator.scheduling.waiting_queue cimport Ranking


@cython.final
cdef class Scores(Ranking):
    cdef const Request* _requests       # borrowed from the workload, like _demands
    cdef const Demand* _demands
    cdef int64_t* _head_start           # [SLO class + 1] the first without one: ns of age, or rank of the base
    cdef int64_t _sign                  # of an arrival in a key: -1 if younger is more urgent, 0 if age is ignored
    cdef bint _is_reversed              # the queue takes the least urgent first
    cdef object _owners                 # the arrays these pointers borrow from

    # Position by urgency; a smaller one is more urgent, at any time.
    cdef inline int64_t place(self, int32_t row) noexcept nogil:
        return self._sign * self._requests[row].arrival_ns - self._head_start[self._demands[row].slo_class + 1]
