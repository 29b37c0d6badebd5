"""A straggler: every iteration takes longer."""
from libc.stdint cimport int32_t
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.latency.overheads.base cimport EngineOverhead
from simulator.latency.base cimport LatencyModel


@cython.final
cdef class Slowed(EngineOverhead):
    """Iterations, host time included, take `factor` times as long as those of `model`.

    It replaces the model of a replica while that is slow, so that healthy replicas pay nothing.
    """

    cdef double _factor

    def __init__(self, LatencyModel model, double factor):
        EngineOverhead.__init__(self, model)
        self._factor = factor
        self.take_host_of(model, factor)

    cdef double around_ns(self, const BatchShape* shape, double ns) noexcept nogil:
        return self._factor * ns

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        cdef int32_t i
        self.model.stages_ns(shape, ns)
        for i in range(self.num_stages):
            ns[i] *= self._factor
        self.note_fault()
