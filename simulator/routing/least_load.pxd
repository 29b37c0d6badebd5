"""The least loaded replica of a view, kept up to date change by change."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.core.draws cimport Draws
from simulator.routing.load cimport Load
from simulator.routing.tied_minima cimport TiedMinima
from simulator.signals.view cimport View


@cython.final
cdef class LeastLoad:
    cdef View view
    cdef Load kind
    cdef TiedMinima loads       # infinity: closed

    # Look, if the load stands in the states, take in what changed since the last time, and forget those changes.
    cdef int refresh(self, int64_t now_ns) except -1 nogil

    # Any of the least loaded, each with the same chance; -1: all are closed.
    cdef int32_t pick(self, Draws draws) noexcept nogil
