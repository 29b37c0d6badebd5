"""Cost of LoRA adapters in an iteration as in BLIS: a share of its time per adapter, by the largest rank."""
from libc.math cimport floor
from libc.stdint cimport int32_t
from libc.stdlib cimport abs
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.latency.overheads.base cimport EngineOverhead
from simulator.latency.base cimport LatencyModel


@cython.final
cdef class Overhead(EngineOverhead):
    """An iteration takes 1 + share x adapters times as long.

    Its time is truncated before and after the multiplication.

    Parameters
    ----------
    model : LatencyModel.
    ranks, shares : int32 and float64 (t,), ascending by rank; the share used is at the rank nearest to the largest in
        the batch, the smaller rank of a tie.

    Notes
    -----
    Source: inference-sim (BLIS) at f90a1e3a, sim/latency.
    """

    cdef const int32_t[::1] _ranks
    cdef const double[::1] _shares

    def __init__(self, LatencyModel model, ranks, shares):
        EngineOverhead.__init__(self, model)
        self._ranks, self._shares = ranks, shares

    cdef double _factor(self, const BatchShape* shape) noexcept nogil:
        cdef int32_t nearest = 0, i
        for i in range(1, <int32_t>self._ranks.shape[0]):
            if abs(self._ranks[i] - shape.largest_rank) < abs(self._ranks[nearest] - shape.largest_rank):
                nearest = i
        return 1.0 + self._shares[nearest] * shape.num_adapters

    cdef double around_ns(self, const BatchShape* shape, double ns) noexcept nogil:
        cdef double resolution_ns = <double>self.resolution_ns(), whole_ns
        if shape.num_adapters == 0:
            return ns
        if resolution_ns == 0.0:
            return ns * self._factor(shape)
        whole_ns = <double>self.model.rounded_ns(ns)
        return floor(whole_ns / resolution_ns * self._factor(shape)) * resolution_ns

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        cdef int32_t i
        self.model.stages_ns(shape, ns)
        self.note_fault()
        for i in range(self.num_stages if shape.num_adapters > 0 else 0):
            ns[i] *= self._factor(shape)
