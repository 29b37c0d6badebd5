"""An iteration that waits for something besides."""
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.latency.base cimport LatencyModel


@cython.final
cdef class Stalled(LatencyModel):
    """Iterations take `stall_ns` longer than those of `model`, in the first stage.

    It stands in for the model of a replica for one iteration, so that others pay nothing.
    """

    cdef LatencyModel _model
    cdef double _stall_ns

    def __init__(self, LatencyModel model, double stall_ns):
        self._model, self._stall_ns = model, stall_ns
        self.take_host_of(model, 1.0)
        if model.num_stages > 1:
            self.set_stages([1] * model.num_stages)     # room for the stages; `model` knows what they hold

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        cdef double ns = self._stall_ns + self._model.batch_ns(shape)
        self.failed = self._model.has_failed()
        return ns

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        self._model.stages_ns(shape, ns)
        ns[0] += self._stall_ns
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
