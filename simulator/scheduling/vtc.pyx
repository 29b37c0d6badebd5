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
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memmove
cimport cython

from simulator.core.row_list cimport RowList, add_row
from simulator.domain.iteration cimport Entry
from simulator.scheduling.base cimport Scheduler, Sequence
from simulator.scheduling.ranked cimport Ranked, RequestRanking

from typing import Annotated

from msgspec import Meta

from simulator.scheduling.ranked import RankedParameters

Weight = Annotated[int, Meta(ge=0, le=1_000_000)]


class VtcParameters(RankedParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a batch, and what service counts."""

    input_token_weight: Annotated[Weight, Meta(description="service that a token of a prompt counts for")] = 1
    output_token_weight: Annotated[Weight, Meta(description="service that a generated token counts for")] = 2


cdef struct Tenant:
    int64_t service             # given so far, without what members have generated since they joined; with lifts
    int64_t offsets             # sum over its members of the tokens they have generated, less the iteration's number
    int64_t counter             # as of when a request last came or left, and what was admitted since
    RowList lane                # from `first` on: who waits, in order of arrival
    int32_t first
    int32_t num_members
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
            free(self.tenants[i].lane.rows)
        free(self.tenants)

    cdef Tenant* of(self, int32_t row) noexcept nogil:
        return &self.tenants[self.demands[row].tenant + 1]

    cdef bint precedes(self, int32_t row, int32_t other) noexcept nogil:
        if self.requests[row].arrival_ns != self.requests[other].arrival_ns:
            return self.requests[row].arrival_ns < self.requests[other].arrival_ns
        return self.demands[row].tie_rank < self.demands[other].tie_rank

    cdef void count(self, int32_t row, int32_t change) noexcept nogil:
        cdef Tenant* tenant = self.of(row)
        cdef int32_t* rows
        cdef int32_t i
        if change > 0:
            add_row(&tenant.lane, row)
        rows, i = tenant.lane.rows, tenant.lane.size - 1
        if change > 0:
            while i > tenant.first and self.precedes(row, rows[i - 1]):
                rows[i] = rows[i - 1]
                i -= 1
            rows[i] = row
            return
        i = tenant.first
        while rows[i] != row:
            i += 1
        memmove(rows + tenant.first + 1, rows + tenant.first, (i - tenant.first) * sizeof(int32_t))
        tenant.first += 1
        if 2 * tenant.first >= tenant.lane.size:        # what has left takes up half of the list
            tenant.lane.size -= tenant.first
            memmove(rows, rows + tenant.first, tenant.lane.size * sizeof(int32_t))
            tenant.first = 0
        if tenant.lane.size == 0:
            self.last_left = self.demands[row].tenant + 1

    cdef int32_t top(self) noexcept nogil:
        """Return the first row of the tenant that had the least; ties: who came first."""
        cdef int32_t best = -1, i, row
        for i in range(self.num_tenants):
            if self.tenants[i].lane.size > 0:
                row = self.tenants[i].lane.rows[self.tenants[i].first]
                if best < 0 or self.tenants[i].counter < self.of(best).counter or (
                        self.tenants[i].counter == self.of(best).counter and self.precedes(row, best)):
                    best = row
        return best

    cdef void lift(self, int32_t index) noexcept nogil:
        """Let a tenant that is back begin where the others are."""
        cdef Tenant* tenant = &self.tenants[index]
        cdef int64_t least = -1
        cdef int32_t i
        tenant.is_back = False
        for i in range(self.num_tenants):
            if self.tenants[i].lane.size > 0 and not self.tenants[i].is_back and i != index:
                least = self.tenants[i].counter if least < 0 else min(least, self.tenants[i].counter)
        if least < 0 and self.last_left >= 0:
            least = self.tenants[self.last_left].counter
        tenant.service += max(least - tenant.counter, 0)
        tenant.counter = max(least, tenant.counter)


@cython.final
cdef class Vtc(Ranked):
    """The tenant that had the least service first; see `VtcParameters`."""

    Parameters = VtcParameters

    cdef VirtualCounters _counters
    cdef RowList _back                  # tenants to be lifted, in order of arrival
    cdef bint _has_changed              # a request came or left since counters were brought up to date
    cdef int64_t _input_weight
    cdef int64_t _output_weight

    def __init__(self, parameters, context):
        Ranked.__init__(self, parameters, context)
        self._counters = VirtualCounters(context)
        self._input_weight = parameters.input_token_weight
        self._output_weight = parameters.output_token_weight
        self._rank_by(context, self._counters)

    def __dealloc__(self):
        free(self._back.rows)

    cdef int enqueue(self, int32_t row) except -1 nogil:
        cdef Tenant* tenant = self._counters.of(row)
        if tenant.lane.size == 0 and not tenant.is_back:
            tenant.is_back = True
            add_row(&self._back, self._demands[row].tenant + 1)
        self._has_changed = True
        return Ranked.enqueue(self, row)

    cdef int _vacate(self, int32_t slot, bint returns) except -1 nogil:
        self._has_changed = True
        return Ranked._vacate(self, slot, returns)

    cdef int _begin_batch(self, int64_t now_ns) except -1 nogil:
        cdef Tenant* tenant
        cdef int32_t i
        for i in range(self._counters.num_tenants if self._has_changed else 0):
            tenant = &self._counters.tenants[i]
            tenant.counter = tenant.service + self._output_weight * (
                tenant.offsets + tenant.num_members * self.iteration)
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
            self._counters.tenants[i].is_back = False
        self._counters.last_left = -1
        self._back.size = 0
        Ranked.forget(self)

    # ---- tokens generated: of members by the number of the iteration

    cdef int update(self, const Entry* entry, int32_t sampled, int32_t rejected, bint goes_on) except -1 nogil:
        self._counters.of(entry.row).service += self._output_weight * sampled
        return Ranked.update(self, entry, sampled, rejected, goes_on)

    cdef int join(self, int32_t slot) except -1 nogil:
        cdef Tenant* tenant = self._counters.of(self._sequences[slot].row)
        cdef const Sequence* sequence = &self._sequences[slot]
        Scheduler.join(self, slot)
        tenant.num_members += 1
        tenant.offsets += sequence.offset + 1 - sequence.prompt_tokens
        tenant.service -= self._output_weight * (
            <int64_t>sequence.num_computed + 1 - sequence.prompt_tokens)
        return 0

    cdef void leave(self, int32_t slot) noexcept nogil:
        cdef const Sequence* sequence = &self._sequences[slot]
        cdef Tenant* tenant = self._counters.of(sequence.row)
        tenant.num_members -= 1
        tenant.offsets -= sequence.offset + 1 - sequence.prompt_tokens
        tenant.service += self._output_weight * self.outputs(slot)
        Scheduler.leave(self, slot)

    cdef int starve(self, int32_t slot) except -1 nogil:
        self._counters.of(self._sequences[slot].row).offsets -= 1
        return Ranked.starve(self, slot)
