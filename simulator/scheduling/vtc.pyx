"""`vtc`: fair shares of an engine among tenants, by a virtual token counter.

Each tenant has a counter of its service: `input_token_weight` for each token of a prompt, when its request is admitted
for the first time, and `output_token_weight` for each token generated. The tenant with the smallest counter goes first,
its requests in order of arrival; where blocks run out, the last admitted is preempted, and recomputation is not charged
again. A tenant that arrives with no request waiting is lifted to the smallest counter of waiting tenants, or without
any, to that of the tenant that left the queue last: service not requested in the past cannot be claimed later. Counters
are updated and tenants lifted at the next batch after an arrival or departure: only then can another tenant be chosen.
Requests without a tenant form one tenant.

Source: Sheng et al., Fairness in Serving Large Language Models, OSDI 2024, arXiv 2401.00588, algorithm 2 and theorem
4.4: counters of two tenants that wait all the time differ by at most twice the larger of the weights of the longest
prompt and of all tokens of a full batch. Weights 1 and 2 are theirs.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free
cimport cython

from simulator.core.row_list cimport RowList, add_row
from simulator.scheduling.lane cimport lane_size
from simulator.scheduling.metered cimport Account, Metered
from simulator.scheduling.virtual_counters cimport Tenant, VirtualCounters

from typing import Annotated

from msgspec import Meta

from simulator.scheduling.ranked import RankedParameters

Weight = Annotated[int, Meta(ge=0, le=1_000_000)]


class VtcParameters(RankedParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a batch, and weights of service."""

    input_token_weight: Annotated[Weight, Meta(description="service counted for a prompt token")] = 1
    output_token_weight: Annotated[Weight, Meta(description="service counted for a generated token")] = 2


@cython.final
cdef class Vtc(Metered):
    """The tenant with the least service first; see `VtcParameters`."""

    Parameters = VtcParameters

    cdef VirtualCounters _counters
    cdef RowList _back                  # tenants to be lifted, in order of arrival
    cdef bint _has_changed              # a request arrived or left since counters were updated
    cdef int64_t _input_weight
    cdef int64_t _output_weight

    def __init__(self, parameters, context):
        Metered.__init__(self, parameters, context)
        self._counters = VirtualCounters(context)
        self._input_weight = parameters.input_token_weight
        self._output_weight = parameters.output_token_weight
        self._rank_by(context, self._counters)

    def __dealloc__(self):
        free(self._back.rows)

    cdef Account* _account(self, int32_t row) noexcept nogil:
        return &self._counters.of(row).account

    cdef int enqueue(self, int32_t row) except -1 nogil:
        cdef Tenant* tenant = self._counters.of(row)
        if lane_size(&tenant.lane) == 0 and not tenant.is_back:
            tenant.is_back = True
            add_row(&self._back, self._demands[row].tenant + 1)
        self._has_changed = True
        return Metered.enqueue(self, row)

    cdef int _vacate(self, int32_t slot, bint returns) except -1 nogil:
        self._has_changed = True
        return Metered._vacate(self, slot, returns)

    cdef int _begin_batch(self, int64_t now_ns) except -1 nogil:
        cdef Tenant* tenant
        cdef int32_t i
        for i in range(self._counters.num_tenants if self._has_changed else 0):
            tenant = &self._counters.tenants[i]
            tenant.counter = tenant.service + self._output_weight * self._metered(&tenant.account)
        for i in range(self._back.size):
            self._counters.lift(self._back.rows[i])
        self._back.size, self._has_changed = 0, False
        return 0

    cdef int32_t _next_row(self) noexcept nogil:
        return self._counters.top()

    cdef int _take(self, int32_t row) except -1 nogil:
        cdef Tenant* tenant = self._counters.of(row)
        if self._requests[row].scheduled_ns < 0:
            tenant.service += self._input_weight * self._requests[row].prompt_tokens
            tenant.counter += self._input_weight * self._requests[row].prompt_tokens
        self.waiting.remove(row)
        return 0

    cdef void forget(self) noexcept nogil:
        self._counters.clear()
        self._back.size = 0
        Metered.forget(self)
