"""Base of the backends with learned prices: source of the coefficients, and warnings outside their fit."""
from simulator.domain.batch cimport BatchShape
from simulator.latency.base cimport LatencyModel


cdef class LearnedModel(LatencyModel):
    cdef readonly object choice     # coefficients.Choice
    cdef object _deployment         # None if unknown
    cdef bint _had_context          # a prompt had tokens in the KV cache

    # Remember that a batch had cached context of prompts, which is not priced; each backend calls it.
    cdef inline void note_context(self, const BatchShape* shape) noexcept nogil:
        if shape.prefill_context_tokens > 0:
            self._had_context = True
