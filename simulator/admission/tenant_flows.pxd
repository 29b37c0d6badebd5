"""Waiting requests of each tenant, and the next tenant."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.admission.tenant_ring cimport TenantRing
from simulator.core.index_list cimport IndexLinks, IndexList
from simulator.domain.request cimport Demand


@cython.final
cdef class TenantFlows:
    cdef readonly int32_t num_tenants   # names, that of requests without a tenant among them
    cdef const Demand* _demands         # [row] borrowed from the workload
    cdef object _owners                 # the arrays these pointers borrow from
    cdef const int32_t* _rank_of        # [tenant code + 1] order of the names
    cdef IndexLinks _links              # a row is in one flow at most
    cdef IndexList* _flows              # [line x num_tenants + rank] rows that wait, in order of arrival
    cdef int32_t _num_flows
    cdef TenantRing _ring               # band x num_tenants + rank of each tenant with a waiting row in a band

    cdef inline int32_t rank(self, int32_t row) noexcept nogil:
        return self._rank_of[self._demands[row].tenant + 1]

    # The row of a tenant, by rank, that waits longest in a line; NONE if none does.
    cdef inline int32_t head(self, int32_t line, int32_t tenant) noexcept nogil:
        return self._flows[line * self.num_tenants + tenant].head

    # Add a row to a line, at its end; take it out. The band is that of the lines first .. end - 1.
    cdef void push(self, int32_t row, int32_t line, int32_t band) noexcept nogil
    cdef void remove(self, int32_t row, int32_t line, int32_t band, int32_t first, int32_t end) noexcept nogil

    # The next tenant, by rank, after `last` (-1: the first) in a band where a row waits.
    cdef int32_t next_tenant(self, int32_t band, int32_t last) noexcept nogil

    # Raise RuntimeError if the links of a flow do not agree, or the flows do not hold `size` rows.
    cdef int check(self, int64_t size) except -1 nogil
