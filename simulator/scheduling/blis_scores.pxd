"""Urgency by age, with a head start for classes, as BLIS's priority policies score it."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.request cimport Demand, Request
from simulator.scheduling.waiting_queue cimport Ranking


@cython.final
cdef class Scores(Ranking):
    cdef const Request* _requests       # of the workload, like _demands
    cdef const Demand* _demands
    cdef int64_t* _head_start           # [SLO class + 1], requests without one first: ns of age; or ranks of bases
    cdef int64_t _sign                  # of an arrival in a key: -1 where who is younger is more urgent, 0 where age
                                        # does not matter
    cdef bint _is_reversed              # the queue takes the least urgent first
    cdef object _owners                 # the arrays these pointers borrow from

    # Smaller: more urgent, at any time.
    cdef inline int64_t place(self, int32_t row) noexcept nogil:
        return self._sign * self._requests[row].arrival_ns - self._head_start[self._demands[row].slo_class + 1]
