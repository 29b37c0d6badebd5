"""`saturation_shed`: when the replicas are saturated, sheddable classes stay outside."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.admission.base cimport Admission
from simulator.admission.saturation.base cimport mean_utilisation
from simulator.core.clock cimport ns_from_s

from simulator.admission.saturation.utilisation import UtilisationParameters


class SaturationShedParameters(UtilisationParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reject priorities below 0 while the replicas are saturated.

    They are when the mean over replicas of max(waiting / its threshold, KV usage / its threshold) is 1 or more. Source:
    BLIS (inference-sim), sim/admission.go, GAIELegacyAdmission; the thresholds are those of llm-d's inference gateway.
    """


@cython.final
cdef class SaturationShed(Admission):
    """Saturation, as the detector `utilisation` has it, shuts sheddable classes out."""

    Parameters = SaturationShedParameters

    cdef double _waiting, _kv_usage
    cdef int64_t _staleness_ns

    def __init__(self, parameters, context):
        self._waiting, self._kv_usage = parameters.queue_depth_threshold, parameters.kv_usage_threshold
        self._staleness_ns = ns_from_s(parameters.staleness_s)
        self.view.wants_times |= self._staleness_ns > 0
        self.reads_state = self.view.wants_counts = self.view.wants_levels = True

    cdef int admit(self, int32_t row, int64_t now_ns) except -1 nogil:
        if not self.classes.is_sheddable(row):
            return 1
        self.view.look(now_ns)
        return mean_utilisation(self.view, self._waiting, self._kv_usage, self._staleness_ns, now_ns) < 1.0
