"""`utilisation`: long queues and full KV caches, averaged over replicas."""
cimport cython
from libc.stdint cimport int64_t
from typing import Annotated

from simulator.admission.saturation.base cimport SaturationDetector, mean_utilisation
from simulator.core.clock cimport ns_from_s

import msgspec
from msgspec import Meta


class UtilisationParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Saturation = mean of max(waiting / its threshold, KV usage / its threshold).

    The mean is over replicas; one with an old report counts as 1. Source: llm-d's inference gateway, utilization
    detector, as BLIS (inference-sim) has it, with its defaults; llm-d-router ebab6879 for staleness.
    """

    queue_depth_threshold: Annotated[float, Meta(gt=0, le=1e9, description="waiting requests of a full replica")] = 5.0
    kv_usage_threshold: Annotated[float, Meta(gt=0, le=1, description=(
        "share of KV blocks in use of a full replica"))] = 0.8
    staleness_s: Annotated[float, Meta(ge=0, le=1e6, description=(
        "age of a report above which a replica counts as full; llm-d: 0.2; 0: any age"))] = 0.0


@cython.final
cdef class Utilisation(SaturationDetector):
    """Long queues and full KV caches, as the replicas report them."""

    Parameters = UtilisationParameters

    cdef double _waiting, _kv_usage
    cdef int64_t _staleness_ns

    def __init__(self, parameters, context):
        self._waiting, self._kv_usage = parameters.queue_depth_threshold, parameters.kv_usage_threshold
        self._staleness_ns = ns_from_s(parameters.staleness_s)
        self.view.wants_times |= self._staleness_ns > 0
        self.reads_state = self.view.wants_counts = self.view.wants_levels = True

    cdef double saturation(self, int64_t now_ns) except -1.0 nogil:
        self.view.look(now_ns)
        return mean_utilisation(self.view, self._waiting, self._kv_usage, self._staleness_ns, now_ns)
