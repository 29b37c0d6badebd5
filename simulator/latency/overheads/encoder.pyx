"""Time of encoders, e.g. of images, before the model computes their embeddings."""
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.latency.overheads.base cimport EngineOverhead
from simulator.latency.base cimport LatencyModel


@cython.final
cdef class Encoder(EngineOverhead):
    """Adds the time of encoders to the first pipeline stage.

    us_per_embedding : price of an embedding, where items have no prices of their own.
    least_us : time of a batch that encodes any item: of reading the weights once.
    """

    cdef double _embedding_ns, _least_ns
    cdef bint _by_item
    cdef list _notes

    def __init__(self, LatencyModel model, double us_per_embedding=0.0, double least_us=0.0, bint by_item=False,
                 notes=()):
        super().__init__(model)
        self._embedding_ns, self._least_ns, self._by_item = us_per_embedding * 1e3, least_us * 1e3, by_item
        self._notes = list(notes)

    cdef double around_ns(self, const BatchShape* shape, double ns) noexcept nogil:
        return ns + self._encoding_ns(shape)

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        self.model.stages_ns(shape, ns)
        self.note_fault()
        ns[0] += self._encoding_ns(shape)

    cdef inline double _encoding_ns(self, const BatchShape* shape) noexcept nogil:
        if shape.encoder_tokens == 0 or not self._by_item:
            return self._embedding_ns * <double>shape.encoder_tokens
        return max(self._least_ns, shape.encoder_ns)

    def warnings(self) -> list:
        """Return the warnings of the model, and those of the prices of items."""
        return self.model.warnings() + self._notes
