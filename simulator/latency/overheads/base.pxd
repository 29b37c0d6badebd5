"""Engine overhead on the time of a batch: a latency model around another one."""
from simulator.domain.batch cimport BatchShape
from simulator.latency.base cimport LatencyModel


cdef class EngineOverhead(LatencyModel):
    cdef readonly LatencyModel model    # the wrapped model

    # Return the time of a batch that takes `ns` in `model`: a pure function. Subclasses override it.
    cdef double around_ns(self, const BatchShape* shape, double ns) noexcept nogil

    # Take over a fault of `model` after a call.
    cdef inline void note_fault(self) noexcept nogil:
        if self.model.has_failed():
            self.failed = True
