"""What an engine adds to the time of a batch: a latency model around another one."""
from simulator.domain.batch cimport BatchShape
from simulator.latency.base cimport LatencyModel


cdef class Around(LatencyModel):
    cdef readonly LatencyModel model    # that this one stands in for

    # How long a batch takes for which the model says `ns`: a pure function. Subclasses override it.
    cdef double around_ns(self, const BatchShape* shape, double ns) noexcept nogil

    # Take over a fault of the model just asked.
    cdef inline void note_fault(self) noexcept nogil:
        if self.model.has_failed():
            self.failed = True
