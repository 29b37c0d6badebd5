"""`header-label`: replicas of the pool that a label of the request names."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.domain.request cimport Demand
from simulator.routing.scoring.base cimport Scorer

cdef enum Label:
    SLO_CLASS = 0
    TENANT = 1
    SESSION = 2
    MODEL = 3
    ADAPTER = 4

_LABELS = ("slo_class", "tenant", "session", "model", "adapter")


class HeaderLabelParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score 1 if a label of the request is the name of the pool, else 0.

    Source: header-label scorer of llm-d-router ebab6879, which compares a header of the request with a label of the
    pod: here a column of the trace, and the name of the pool.
    """

    label: Annotated[Literal["slo_class", "tenant", "session", "model", "adapter"], Meta(description=(
        "label of a request that names a pool"))] = "slo_class"


cdef inline int32_t code_of(Label label, const Demand* demand) noexcept nogil:
    """Return the code of a label of a request, -1 if it has none."""
    if label == SLO_CLASS:
        return demand.slo_class
    if label == TENANT:
        return demand.tenant
    if label == SESSION:
        return demand.session
    return demand.model if label == MODEL else demand.adapter


@cython.final
cdef class HeaderLabel(Scorer):
    """Replicas of the named pool are better."""

    Parameters = HeaderLabelParameters

    cdef Label _label
    cdef int32_t* _code_of_pool         # [pool] code of the label that is its name; -2: no request has it

    def __cinit__(self, parameters, context):
        names = [str(name) for name in context.workload.labels.get(parameters.label, ())]
        self._code_of_pool = <int32_t*>malloc((len(context.pools) + 1) * sizeof(int32_t))
        if self._code_of_pool == NULL:
            raise MemoryError()
        self._code_of_pool[0] = -2
        for number, pool in enumerate(context.pools):
            self._code_of_pool[<int32_t>number] = names.index(pool.name) if pool.name in names else -2

    def __init__(self, parameters, context):
        self._label = _LABELS.index(parameters.label)
        self.is_per_request = True

    def __dealloc__(self):
        free(self._code_of_pool)

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t code = code_of(self._label, &self.demands[row]), i
        if code < 0:
            return 0
        for i in range(self.num_replicas):
            self.values[i] = self._code_of_pool[self.view.accounts[i].pool] == code
        return 1
