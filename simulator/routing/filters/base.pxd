"""Base class of filters: the replicas that stay candidates for a request, before scores are added up."""
from libc.stdint cimport int32_t, int64_t, uint64_t

from simulator.core.draws cimport mix
from simulator.domain.request cimport Demand, Request
from simulator.kv.content cimport Content
from simulator.signals.view cimport View


cdef class Filter:
    cdef readonly View view
    cdef readonly int32_t num_replicas
    cdef const Request* requests        # [row] of the workload, borrowed, like demands
    cdef const Demand* demands
    cdef Content content                # of prompts: hashes of blocks
    cdef public int64_t num_emptied     # times that it left no candidate
    cdef public int64_t num_fallbacks   # times that it kept all candidates since none met its conditions
    cdef uint64_t _key                  # of its random numbers
    cdef object _owners                 # the arrays these pointers borrow from

    # Move the candidates that stay to the front of `candidates`, in their order, and return their number; 0: the
    # request gets no replica. Called with `count` >= 1 open replicas in ascending order. No side effects but counts.
    cdef int32_t keep(self, int32_t row, int32_t* candidates, int32_t count, int64_t now_ns) except -1 nogil

    # Notifications, as for routers.
    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int closed(self, int32_t replica, int64_t now_ns) except -1 nogil

    # Uniform in [0, 1), one number for each request: asking twice gives one answer.
    cdef inline double uniform(self, int32_t row) noexcept nogil:
        return (mix(self._key + <uint64_t>(row + 1) * <uint64_t>0x9E3779B97F4A7C15) >> 11) * 1.1102230246251565e-16


# Filters that test each replica by itself.
cdef class EachAlone(Filter):
    cdef bint falls_back                # if no replica passes, all stay

    # Whether a replica stays.
    cdef bint passes(self, int32_t row, int32_t replica, int64_t now_ns) noexcept nogil
