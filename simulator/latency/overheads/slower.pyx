"""A server slower, or faster, than predicted: one factor on all iterations."""
from libc.stdint cimport int32_t
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.latency.overheads.base cimport EngineOverhead
from simulator.latency.base cimport LatencyModel


@cython.final
cdef class Slower(EngineOverhead):
    """Each iteration takes `factor` times as long, the host's part of it included.

    Times that the host spends outside iterations, in queues and with finished tokens, stay as they are.
    """

    cdef double _factor

    def __init__(self, LatencyModel model, double factor):
        EngineOverhead.__init__(self, model)
        self.take_host_of(model, factor)
        self._factor = factor

    cdef double around_ns(self, const BatchShape* shape, double ns) noexcept nogil:
        return ns * self._factor

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        cdef int32_t i
        self.model.stages_ns(shape, ns)
        self.note_fault()
        for i in range(self.num_stages):
            ns[i] = ns[i] * self._factor
