"""Counters of the service of tenants, in weighted tokens, and their waiting requests.

Sheng et al., arXiv 2401.00588, algorithm 2; see vtc.pyx, which uses them.
"""
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport calloc, free
cimport cython

from simulator.scheduling.lane cimport came_before, enter_lane, lane_row, lane_size, leave_lane


@cython.final
cdef class VirtualCounters(RequestRanking):
    """Counters and waiting requests of tenants; see virtual_counters.pxd."""

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

    cdef void clear(self) noexcept nogil:
        cdef int32_t i
        for i in range(self.num_tenants):
            self.tenants[i].service = self.tenants[i].counter = self.tenants[i].account.tokens = 0
            self.tenants[i].is_back = False
        self.last_left = -1
