"""Time of encoders, e.g. of images, before the model computes their embeddings."""
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.latency.overheads.base cimport EngineOverhead
from simulator.latency.base cimport LatencyModel


@cython.final
cdef class Encoder(EngineOverhead):
    """Adds a price per embedding, to the first pipeline stage."""

    cdef double _embedding_ns

    def __init__(self, LatencyModel model, double us_per_embedding):
        super().__init__(model)
        self._embedding_ns = us_per_embedding * 1e3

    cdef double around_ns(self, const BatchShape* shape, double ns) noexcept nogil:
        return ns + self._embedding_ns * <double>shape.encoder_tokens

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        self.model.stages_ns(shape, ns)
        self.note_fault()
        ns[0] += self._embedding_ns * <double>shape.encoder_tokens
