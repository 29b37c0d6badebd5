"""How long an iteration takes: the one question the engine asks."""
cimport cython
from libc.math cimport floor
from libc.stdint cimport int64_t

from simulator.core.arithmetic cimport round_half_up
from simulator.domain.batch cimport BatchShape
from simulator.latency.collective cimport CollectiveModel

cdef extern from *:
    const int64_t LONGEST_ITERATION_NS "INT64_C(1000000000000000000)"    # 31 years; what is longer is cut to it


cdef class LatencyModel:
    cdef readonly bint failed           # a time could not be given; see has_failed()
    cdef CollectiveModel _collective    # prices communication; None: there is none, or the backend prices it itself
    cdef double _host_iteration_ns      # added to every iteration, [latency.host] iteration_us
    cdef int64_t _resolution_ns         # 0: nearest ns; else truncate to whole multiples of this, at least one

    # Nanoseconds of accelerator time for a batch of at least one token: a pure function of the shape. Backends override
    # this.
    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil

    # True: the last time means nothing, the caller stops and calls raise_if_failed().
    @cython.final
    cdef inline bint has_failed(self) noexcept nogil:
        return self.failed or (self._collective is not None and self._collective.failed)

    # What the engine calls: batch_ns plus host time, rounded once, at least 1 ns.
    @cython.final
    cdef inline int64_t iteration_ns(self, const BatchShape* shape) noexcept nogil:
        cdef double ns = self.batch_ns(shape) + self._host_iteration_ns
        cdef int64_t whole
        if not ns <= LONGEST_ITERATION_NS:       # not a number neither
            ns = LONGEST_ITERATION_NS
        if self._resolution_ns > 0:
            whole = <int64_t>floor(ns / self._resolution_ns) * self._resolution_ns
            return whole if whole > 0 else self._resolution_ns
        whole = round_half_up(ns)
        return whole if whole > 0 else 1
