"""Iterations of pooling models: no row of the batch passes the output head or the sampler."""
from libc.stdint cimport int32_t
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.latency.overheads.base cimport EngineOverhead
from simulator.latency.base cimport LatencyModel
from simulator.latency.gathering cimport Gathered


@cython.final
cdef class Headless(EngineOverhead):
    """Prices batches as if no sequence sampled a token.

    Source: vLLM 0.33.0, vllm/model_executor/models/adapters.py, which deletes the head of a language model that serves
    pooling. The pooler, a mean or one row a sequence and at most a product of a few columns, has no price.
    """

    def __init__(self, LatencyModel model):
        super().__init__(model)

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        cdef BatchShape bare = shape[0]
        cdef double ns
        bare.num_samples = 0
        ns = self.model.batch_ns(&bare)
        self.note_fault()
        return ns

    cdef double rank_ns(self, const BatchShape* shape, const Gathered* gathered, int32_t num_ranks) noexcept nogil:
        cdef BatchShape bare = shape[0]
        cdef double ns
        bare.num_samples = 0
        ns = self.model.rank_ns(&bare, gathered, num_ranks)
        self.note_fault()
        return ns

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        cdef BatchShape bare = shape[0]
        bare.num_samples = 0
        EngineOverhead.stages_ns(self, &bare, ns)

    def warnings(self) -> list:
        """Return the warnings of the model, and the part of pooling that is not priced."""
        return self.model.warnings() + ["pooling: the pooler behind the last layer has no price"]
