"""LoRA adapters: their cost in a batch, and the time to load them before it."""
from libc.stdint cimport int32_t
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.latency.overheads.base cimport EngineOverhead
from simulator.latency.base cimport LatencyModel


@cython.final
cdef class Adapters(EngineOverhead):
    """A batch with adapters takes `step_factor` times as long, plus time per adapter.

    That time is `per_adapter_us`.
    Missing adapters, as counted in the batch, are loaded before it, which delays all its sequences:
    `load_us` for each adapter, and `read_us` for each that is read from the disk.
    in_each : batches without adapters take as long as those with, as the same kernels run.
    """

    cdef double _factor, _adapter_ns, _load_ns, _read_ns
    cdef bint _in_each

    def __init__(self, LatencyModel model, double step_factor, double per_adapter_us, double load_us, double read_us,
                 bint in_each=False):
        self._in_each = in_each
        EngineOverhead.__init__(self, model)
        self._factor, self._adapter_ns = step_factor, per_adapter_us * 1e3
        self._load_ns, self._read_ns = load_us * 1e3, read_us * 1e3

    cdef inline double _loads_ns(self, const BatchShape* shape) noexcept nogil:
        return self._load_ns * shape.num_loads + self._read_ns * shape.num_reads

    cdef double around_ns(self, const BatchShape* shape, double ns) noexcept nogil:
        if shape.num_adapters > 0 or self._in_each:
            ns = ns * self._factor + self._adapter_ns * shape.num_adapters
        return ns + self._loads_ns(shape)

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        """Each stage computes its layers of an adapter; all adapters are loaded when the first stage begins."""
        cdef int32_t i
        self.model.stages_ns(shape, ns)
        self.note_fault()
        if shape.num_adapters > 0 or self._in_each:
            for i in range(self.num_stages):
                ns[i] = ns[i] * self._factor + self._adapter_ns * shape.num_adapters / self.num_stages
        ns[0] += self._loads_ns(shape)
