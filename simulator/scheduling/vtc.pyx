"""`vtc`: fair shares of an engine among tenants, by a virtual token counter.

Each tenant has a counter of its service: `input_token_weight` for each token of a prompt, when its request is admitted
for the first time, and `output_token_weight` for each token generated. The tenant of the smallest counter goes first,
its requests as they came; where blocks run out, the last admitted makes room, and nobody is charged again for what is
then recomputed. A tenant that comes with nobody waiting is lifted to the smallest counter of those that wait, or if
nobody does, to that of the tenant that left the queue last: what it did not ask for it cannot claim later. Tokens
generated count, and tenants are lifted, at the next batch after a request came or left: only then is anybody chosen who
was not before. Requests without a tenant are one tenant.

Source: Sheng et al., Fairness in Serving Large Language Models, OSDI 2024, arXiv 2401.00588, algorithm 2 and theorem
4.4: of two tenants that wait all the time, counters differ by at most twice the larger of what the longest prompt and
what all tokens of a full batch count for. Weights 1 and 2 are theirs.
"""
from libc.stdint cimport INT64_MAX, int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.row_list cimport RowList, add_row
from simulator.scheduling.lane cimport Lane, came_before, enter_lane, lane_row, lane_size, leave_lane
from simulator.scheduling.metered cimport Account, Metered
from simulator.scheduling.ranked cimport RequestRanking

from typing import Annotated

from msgspec import Meta

from simulator.scheduling.ranked import RankedParameters

Weight = Annotated[int, Meta(ge=0, le=1_000_000)]


class VtcParameters(RankedParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a batch, and what service counts."""

    input_token_weight: Annotated[Weight, Meta(description="service that a token of a prompt counts for")] = 1
    output_token_weight: Annotated[Weight, Meta(description="service that a generated token counts for")] = 2


cdef struct Tenant:
    Account account             # tokens generated for it
    Lane lane                   # who waits
    int64_t service             # given so far, without tokens generated; with lifts
    int64_t counter             # with these, as of when a request last came or left, and what was admitted since
    int8_t is_back              # it has come with nobody waiting, and is not lifted yet


@cython.final
cdef class VirtualCounters(RequestRanking):
    """Counters of tenants, in weighted tokens, and who of each waits."""

    cdef Tenant* tenants                # [num_tenants] by label + 1; first those who name none
    cdef int32_t num_tenants
    cdef int32_t last_left              # the tenant that left the queue last; -1: nobody has

    def __init__(self, context):
        self.num_tenants = len(context.labels.get("tenant", ())) + 1
        self.tenants = <Tenant*>calloc(self.num_tenants, sizeof(Tenant))
        self.last_left = -1
        if self.tenants == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.num_tenants if self.tenants != NULL else 0):
            free(self.tenants[i].lane.listed.rows)
        free(self.tenants)

    cdef Tenant* of(self, int32_t row) noexcept nogil:
        return &self.tenants[self.demands[row].tenant + 1]

    cdef void count(self, int32_t row, int32_t change) noexcept nogil:
        cdef Lane* lane = &self.of(row).lane
        if change > 0:
            enter_lane(lane, row, self.requests, self.demands)
            return
        leave_lane(lane, row)
        if lane_size(lane) == 0:
            self.last_left = self.demands[row].tenant + 1

    cdef int32_t top(self) noexcept nogil:
        """Return the first row of the tenant that had the least; ties: who came first."""
        cdef const Tenant* tenant = self.tenants
        cdef int32_t best = -1, i
        cdef int64_t least = INT64_MAX
        for i in range(self.num_tenants):
            if lane_size(&tenant[i].lane) > 0 and (tenant[i].counter < least or (
                    tenant[i].counter == least
                    and came_before(self.requests, self.demands, lane_row(&tenant[i].lane, 0), best))):
                best, least = lane_row(&tenant[i].lane, 0), tenant[i].counter
        return best

    cdef void lift(self, int32_t index) noexcept nogil:
        """Let a tenant that is back begin where the others are."""
        cdef Tenant* tenant = &self.tenants[index]
        cdef int64_t least = -1
        cdef int32_t i
        tenant.is_back = False
        for i in range(self.num_tenants):
            if lane_size(&self.tenants[i].lane) > 0 and not self.tenants[i].is_back and i != index:
                least = self.tenants[i].counter if least < 0 else min(least, self.tenants[i].counter)
        if least < 0 and self.last_left >= 0:
            least = self.tenants[self.last_left].counter
        tenant.service += max(least - tenant.counter, 0)
        tenant.counter = max(least, tenant.counter)


@cython.final
cdef class Vtc(Metered):
    """The tenant that had the least service first; see `VtcParameters`."""

    Parameters = VtcParameters

    cdef VirtualCounters _counters
    cdef RowList _back                  # tenants to be lifted, in order of arrival
    cdef bint _has_changed              # a request came or left since counters were brought up to date
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
        cdef int32_t i
        for i in range(self._counters.num_tenants):
            self._counters.tenants[i].service = self._counters.tenants[i].counter = 0
            self._counters.tenants[i].account.tokens = 0
            self._counters.tenants[i].is_back = False
        self._counters.last_left = -1
        self._back.size = 0
        Metered.forget(self)
