"""The latency model of an iteration with a stall."""
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.latency.overheads.base cimport EngineOverhead
from simulator.latency.base cimport LatencyModel


@cython.final
cdef class Stalled(EngineOverhead):
    """Iterations take `stall_ns` longer than those of `model`, in the first stage.

    It replaces the model of a replica for one iteration, so that other iterations pay nothing.
    """

    cdef double _stall_ns

    def __init__(self, LatencyModel model, double stall_ns):
        EngineOverhead.__init__(self, model)
        self._stall_ns = stall_ns

    cdef double around_ns(self, const BatchShape* shape, double ns) noexcept nogil:
        return ns + self._stall_ns

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        self.model.stages_ns(shape, ns)
        ns[0] += self._stall_ns
        self.note_fault()
