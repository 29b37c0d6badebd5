"""`never`: decode replicas do whole requests, prefill replicas none."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.routing.disaggregation.base cimport Decider


@cython.final
cdef class Never(Decider):
    """No request is split."""

    cdef bint splits(self, int32_t row, int32_t prefill, int32_t decode, int64_t now_ns) except -1 nogil:
        return False
