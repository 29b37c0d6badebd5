"""Service that each tenant got so far, which decays, and the tenant with the least."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.admission.tenant_flows cimport TenantFlows
from simulator.domain.request cimport Request


cdef struct Service:            # of a tenant
    double tokens               # weighted, as of `at_ns`
    int64_t at_ns
    int64_t age_ms              # of its oldest waiting request, while tenants are compared
    double tokens_now           # as of then


@cython.final
cdef class AttainedService:
    cdef const Request* _requests       # [row] borrowed
    cdef object _owner
    cdef Service* _services             # [rank of the tenant]
    cdef double _service_weight, _wait_weight, _output_weight, _half_life_ns
    cdef int64_t _ttl_ns                # without a completion for so long a tenant is forgotten

    # A request of a tenant has left its replica.
    cdef void completed(self, int32_t tenant, int32_t row, int64_t now_ns) noexcept nogil

    # Service of a tenant now.
    cdef double of(self, int32_t tenant, int64_t now_ns) noexcept nogil

    # Note the age of a tenant's oldest waiting request, and its service now.
    cdef void compare(self, int32_t tenant, int64_t age_ns, int64_t now_ns) noexcept nogil

    # The tenant with the highest score among those with a waiting request in a band; `compare` comes first.
    cdef int32_t best(self, TenantFlows flows, int32_t band) noexcept nogil
