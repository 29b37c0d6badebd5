"""`isl_bounding`: a decode replica keeps prompts of which it lacks few tokens; Dynamo's."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.routing.disaggregation.conditional cimport Conditional

from simulator.routing.disaggregation.conditional import ShortPrompts


@cython.final
cdef class IslBounding(Conditional):
    """Splits all but short prompts.

    Tokens cached by the decode replica do not count.
    """

    Parameters = ShortPrompts
    needs_decode = True

    cdef int64_t _tokens
    cdef double _share

    def __init__(self, parameters, context):
        self._tokens, self._share = parameters.eff_isl_threshold, parameters.eff_isl_ratio_threshold
        self.decode.wants_caches = True

    cdef bint stays(self, int32_t row, int32_t prefill, int32_t decode, int64_t now_ns) except -1 nogil:
        return self.is_short(row, decode, self._tokens, self._share, now_ns)
