"""Whether a replica is predicted to keep the targets of a request."""
cimport cython

import numpy as np

from simulator.domain.slo_classes import class_of


@cython.final
cdef class InTime:
    """Predictions beside the targets of SLO classes.

    workload : simulator.workload.base.Workload, for the names of its classes. classes : SLO classes by name; None: the
    usual ones. line : domain.latency_line.LatencyLine.
    """

    def __init__(self, workload, classes, line):
        cdef const double[:, ::1] targets
        found = [class_of(name, classes or {}) for name in (None, *workload.labels.get("slo_class", ()))]
        self._arrays = 1e3 * np.array([(each.ttft_ms or line.ttft_slo_ms, each.tpot_ms or line.tpot_slo_ms)
                                       for each in found])
        targets = self._arrays
        self._targets_us = &targets[0, 0]
        self._prices = Prices(line.base_us, line.per_sequence_us, line.per_prefill_token_us)

    cdef bint holds(self, View view, int32_t slo_class, int32_t prompt_tokens, int32_t replica) noexcept nogil:
        cdef const double* target_us = &self._targets_us[2 * (slo_class + 1)]
        cdef double tpot_us = predicted_tpot_us(view, replica, &self._prices)
        return tpot_us <= target_us[1] and predicted_ttft_us(
            view, replica, prompt_tokens, tpot_us, &self._prices) <= target_us[0]
