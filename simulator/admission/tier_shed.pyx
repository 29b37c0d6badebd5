"""`tier_shed`: when a replica is loaded, the less urgent classes stay outside."""
cimport cython
from libc.stdint cimport int32_t, int64_t
from typing import Annotated

from simulator.admission.base cimport Admission
from simulator.signals.load cimport effective_load

import msgspec
from msgspec import Meta


class TierShedParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reject priorities below min_priority while a replica has a load above max_load.

    Load = waiting + running + in flight; a running request counts twice. Source: BLIS (inference-sim),
    sim/admission.go, TierShedAdmission.
    """

    max_load: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "waiting + running + in flight of a replica up to which all are let in"))] = 0
    min_priority: Annotated[int, Meta(ge=-100, le=101, description=(
        "least priority of the SLO class with which requests are let in at any load"))] = 3


@cython.final
cdef class TierShed(Admission):
    """When a replica is loaded, the less urgent classes stay outside."""

    Parameters = TierShedParameters

    cdef int64_t _max_load
    cdef int32_t _min_priority

    def __init__(self, parameters, context):
        self._max_load, self._min_priority = parameters.max_load, parameters.min_priority
        self.reads_state = self.view.wants_counts = True

    cdef int admit(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        if self.classes.priority_of(row) >= self._min_priority:
            return 1
        self.view.look(now_ns)
        for i in range(self.view.num_replicas):
            if self.view.accounts[i].is_routable and effective_load(self.view, i) > self._max_load:
                return 0
        return 1
