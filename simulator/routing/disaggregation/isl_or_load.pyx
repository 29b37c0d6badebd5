"""`isl_or_load`: requests stay for either reason, a short prompt or a busy prefill replica; Dynamo's."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.routing.disaggregation.conditional cimport Conditional

from simulator.routing.disaggregation.conditional import BusyShare, ShortPrompts


class IslOrLoadParameters(ShortPrompts, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of [cluster.disaggregation]."""

    prefill_busy_threshold: BusyShare = 0.25


@cython.final
cdef class IslOrLoad(Conditional):
    """Splits requests that are not short if their prefill replica is not busy."""

    Parameters = IslOrLoadParameters
    needs_decode = True

    cdef int64_t _tokens
    cdef double _short, _busy

    def __init__(self, parameters, context):
        self._tokens, self._short = parameters.eff_isl_threshold, parameters.eff_isl_ratio_threshold
        self._busy, self.looks_at_prefill = parameters.prefill_busy_threshold, True
        self.decode.wants_caches = self.prefill.wants_counts = True

    cdef bint stays(self, int32_t row, int32_t prefill, int32_t decode, int64_t now_ns) except -1 nogil:
        return (self.is_short(row, decode, self._tokens, self._short, now_ns)
                or self.is_busy(prefill, self._busy, now_ns))
