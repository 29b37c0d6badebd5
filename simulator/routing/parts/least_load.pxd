"""The least loaded replica of a view, kept up to date change by change."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.core.draws cimport Draws
from simulator.routing.parts.load cimport Load
from simulator.core.tied_counts cimport TiedCounts
from simulator.core.tied_minima cimport TiedMinima
from simulator.signals.view cimport View


@cython.final
cdef class LeastLoad:
    cdef View view
    cdef Load kind
    cdef TiedCounts _counts     # of requests in flight; None: another load
    cdef TiedMinima _loads      # of that kind, infinity: closed; None: see above

    # Look, if the load depends on the states, process the changes since the last time, and forget those changes.
    cdef int refresh(self, int64_t now_ns) except -1 nogil

    # A router that uses it passes on that a request went to a replica, or left it.
    cdef inline int sent(self, int32_t replica) except -1 nogil:
        return self._counts.increase(replica) if self._counts is not None else 0

    cdef inline int left(self, int32_t replica) except -1 nogil:
        return self._counts.decrease(replica) if self._counts is not None else 0

    # The load of a replica as of then; infinity: closed.
    cdef double load(self, int32_t replica) noexcept nogil

    # Any of the least loaded, each equally likely; the first one. -1: all are closed.
    cdef int32_t pick(self, Draws draws) noexcept nogil
    cdef int32_t first(self) noexcept nogil
