"""`prefill_load`: requests stay at their decode replica while the prefill replica they would get is busy; Dynamo's."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.routing.disaggregation.conditional cimport Conditional

from simulator.routing.disaggregation.conditional import BusyShare, DecodeGate


class PrefillLoadParameters(DecodeGate, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of [cluster.disaggregation]."""

    prefill_busy_threshold: BusyShare = 0.25


@cython.final
cdef class PrefillLoad(Conditional):
    """Splits requests unless their prefill replica is busy."""

    Parameters = PrefillLoadParameters
    needs_decode = True

    cdef double _share

    def __init__(self, parameters, context):
        self._share, self.looks_at_prefill = parameters.prefill_busy_threshold, True
        self.prefill.wants_counts = True

    cdef bint stays(self, int32_t row, int32_t prefill, int32_t decode, int64_t now_ns) except -1 nogil:
        return self.is_busy(prefill, self._share, now_ns)
