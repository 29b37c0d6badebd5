"""Service that each tenant got so far, which decays, and the tenant with the least.

Source: program-aware fairness of llm-d-router ebab6879, least attained service.
"""
cimport cython
from libc.math cimport INFINITY, exp2
from libc.stdlib cimport calloc, free

from simulator.core.clock cimport ns_from_s


cdef inline double share_of(double value, double least, double most) noexcept nogil:
    return (value - least) / (most - least) if most > least else 0.5


@cython.final
cdef class AttainedService:
    """Attained service of `num_tenants` tenants, none at first.

    workload : simulator.workload.base.Workload. rule : domain.gateway.LeastService.
    """

    def __init__(self, workload, int32_t num_tenants, rule):
        cdef const Request[::1] requests = workload.requests
        self._owner = workload
        if len(requests):
            self._requests = &requests[0]
        self._services = <Service*>calloc(num_tenants, sizeof(Service))
        if self._services == NULL:
            raise MemoryError()
        self._service_weight, self._wait_weight = rule.service_weight, rule.wait_weight
        self._output_weight, self._half_life_ns = rule.output_weight, 1e9 * rule.half_life_s
        self._ttl_ns = ns_from_s(rule.ttl_s)

    def __dealloc__(self):
        free(self._services)

    cdef double of(self, int32_t tenant, int64_t now_ns) noexcept nogil:
        cdef int64_t since_ns = now_ns - self._services[tenant].at_ns
        if since_ns > self._ttl_ns:
            return 0.0
        return self._services[tenant].tokens * exp2(-<double>since_ns / self._half_life_ns)

    cdef void completed(self, int32_t tenant, int32_t row, int64_t now_ns) noexcept nogil:
        self._services[tenant].tokens = self.of(tenant, now_ns) + (
            self._requests[row].prompt_tokens + self._output_weight * self._requests[row].output_tokens)
        self._services[tenant].at_ns = now_ns

    cdef void compare(self, int32_t tenant, int64_t age_ns, int64_t now_ns) noexcept nogil:
        self._services[tenant].age_ms = age_ns // 1_000_000
        self._services[tenant].tokens_now = self.of(tenant, now_ns)

    cdef int32_t best(self, TenantFlows flows, int32_t band) noexcept nogil:
        cdef int32_t first = flows.next_tenant(band, -1), tenant = first, found = first
        cdef double[2] least
        cdef double[2] most
        cdef double score, highest = -INFINITY
        cdef const Service* service
        least[0] = least[1] = INFINITY
        most[0] = most[1] = -INFINITY
        while True:
            service = &self._services[tenant]
            least[0], most[0] = min(least[0], service.tokens_now), max(most[0], service.tokens_now)
            least[1], most[1] = min(least[1], <double>service.age_ms), max(most[1], <double>service.age_ms)
            tenant = flows.next_tenant(band, tenant)
            if tenant == first:
                break
        while True:
            service = &self._services[tenant]
            score = self._service_weight * (1.0 - share_of(service.tokens_now, least[0], most[0])) + (
                self._wait_weight * share_of(<double>service.age_ms, least[1], most[1]))
            if score > highest:
                highest, found = score, tenant
            tenant = flows.next_tenant(band, tenant)
            if tenant == first:
                return found
