"""Base of Dynamo's conditional disaggregation: rules by which a request stays, and the limit on its decode replica."""
from libc.stdint cimport int32_t, int64_t

from simulator.routing.disaggregation.base cimport Decider


cdef class Conditional(Decider):
    cdef double _decode_busy            # share of its KV blocks above which a decode replica takes no whole request;
                                        # < 0: none is too busy
    cdef int32_t _block_size            # tokens per cached block

    # Do the rules of the policy keep the whole request at the decode replica?
    cdef bint stays(self, int32_t row, int32_t prefill, int32_t decode, int64_t now_ns) except -1 nogil

    # The two rules: short, and mostly cached by the decode replica; or the prefill replica is busy.
    cdef bint is_short(self, int32_t row, int32_t decode, int64_t tokens, double share, int64_t now_ns) except -1 nogil
    cdef bint is_busy(self, int32_t prefill, double share, int64_t now_ns) except -1 nogil
