"""Counters of the service of tenants, and their waiting requests; see virtual_counters.pyx."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.scheduling.lane cimport Lane
from simulator.scheduling.metered cimport Account
from simulator.scheduling.ranked cimport RequestRanking


cdef struct Tenant:
    Account account             # tokens generated for it
    Lane lane                   # waiting requests
    int64_t service             # service so far: lifts, and all but generated tokens
    int64_t counter             # service and generated tokens at the last arrival or departure, plus admissions since
    int8_t is_back              # it arrived with no request waiting, and is not lifted yet


cdef class VirtualCounters(RequestRanking):
    cdef Tenant* tenants                # [num_tenants] by label + 1; the first is of requests without a tenant
    cdef int32_t num_tenants
    cdef int32_t last_left              # tenant that left the queue last; -1: none has

    # The tenant of a request.
    cdef Tenant* of(self, int32_t row) noexcept nogil

    # The first row of the tenant with the least counter; ties: first arrival. The queue must not be empty.
    cdef int32_t top(self) noexcept nogil

    # Raise the counter of a tenant that is back to that of the others.
    cdef void lift(self, int32_t index) noexcept nogil

    # The process has ended: reset all counters.
    cdef void clear(self) noexcept nogil
