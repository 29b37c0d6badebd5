"""Base of the backends whose prices were learned: where the coefficients come from, and how far to trust them."""
from simulator.domain.batch cimport BatchShape
from simulator.latency.base cimport LatencyModel


cdef class LearnedModel(LatencyModel):
    cdef readonly object choice     # coefficients.Choice
    cdef object _deployment         # what runs; None where it is not known
    cdef bint _had_context          # a prompt had tokens in the KV cache

    # Remember that a batch had what the coefficients do not price; each backend calls it.
    cdef inline void note_context(self, const BatchShape* shape) noexcept nogil:
        if shape.prefill_context_tokens > 0:
            self._had_context = True
