"""`always`: every request is split; llm-d's always-disagg-pd-decider, SGLang's gateway, vLLM's proxies."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.routing.disaggregation.base cimport Decider


@cython.final
cdef class Always(Decider):
    """Every request is split."""

    cdef bint splits(self, int32_t row, int32_t prefill, int32_t decode, int64_t now_ns) except -1 nogil:
        return True
