"""Counters of what tenants were served, and who of each waits; see virtual_counters.pyx."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.scheduling.lane cimport Lane
from simulator.scheduling.metered cimport Account
from simulator.scheduling.ranked cimport RequestRanking


cdef struct Tenant:
    Account account             # tokens generated for it
    Lane lane                   # who waits
    int64_t service             # given so far, without tokens generated; with lifts
    int64_t counter             # with these, as of when a request last came or left, and what was admitted since
    int8_t is_back              # it has come with nobody waiting, and is not lifted yet


cdef class VirtualCounters(RequestRanking):
    cdef Tenant* tenants                # [num_tenants] by label + 1; first those who name none
    cdef int32_t num_tenants
    cdef int32_t last_left              # the tenant that left the queue last; -1: nobody has

    # The tenant of a request.
    cdef Tenant* of(self, int32_t row) noexcept nogil

    # The first row of the tenant that had the least; ties: who came first. Somebody waits.
    cdef int32_t top(self) noexcept nogil

    # Let a tenant that is back begin where the others are.
    cdef void lift(self, int32_t index) noexcept nogil

    # The process has ended: nobody was served.
    cdef void clear(self) noexcept nogil
