"""A straggler: every iteration takes longer."""
from libc.stdint cimport int32_t
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.latency.base cimport LatencyModel


@cython.final
cdef class Slowed(LatencyModel):
    """Iterations, host time included, take `factor` times as long as those of `model`.

    It stands in for the model of a replica as long as that is slow, so that healthy replicas pay nothing.
    """

    cdef LatencyModel _model
    cdef double _factor

    def __init__(self, LatencyModel model, double factor):
        self._model, self._factor = model, factor
        self.take_host_of(model, factor)
        if model.num_stages > 1:
            self.set_stages([1] * model.num_stages)     # room for the stages; `model` knows what they hold

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        cdef double ns = self._factor * self._model.batch_ns(shape)
        self.failed = self._model.has_failed()
        return ns

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        cdef int32_t i
        self._model.stages_ns(shape, ns)
        for i in range(self.num_stages):
            ns[i] *= self._factor
        self.failed = self._model.has_failed()

    def provenance(self) -> dict:
        """Return that of the model."""
        return self._model.provenance()

    def warnings(self) -> list:
        """Return those of the model."""
        return self._model.warnings()

    def raise_if_failed(self):
        """Raise what the model raises."""
        self.failed = False
        self._model.raise_if_failed()
