"""Waiting requests of each tenant, and the next tenant: one flow for each tenant and SLO class."""
cimport cython
from libc.stdlib cimport free, malloc

from simulator.core.errors cimport broken
from simulator.core.index_list cimport NONE, new_list

import numpy as np

UNNAMED = "default"     # BLIS's name (inference-sim, sim/cluster/gateway_queue.go) for requests without a tenant


@cython.final
cdef class TenantFlows:
    """The flows of all tenants of a workload in its lines, none waiting at first.

    workload : simulator.workload.base.Workload.
    num_lines, num_bands : lines, and the bands that they form.
    """

    def __cinit__(self, workload, int32_t num_lines, int32_t num_bands):
        cdef const Demand[::1] demands = workload.demands
        cdef const int32_t[::1] ranks
        cdef int32_t i
        names = [UNNAMED, *map(str, workload.labels.get("tenant", ()))]
        _, rank_of = np.unique(names, return_inverse=True)
        rank_of = rank_of.astype(np.int32)
        ranks = rank_of
        self._rank_of, self.num_tenants = &ranks[0], rank_of.max() + 1
        self._owners = rank_of, workload.demands
        if len(demands):
            self._demands = &demands[0]
        if num_lines * <int64_t>self.num_tenants >= 2**31:
            raise ValueError(f"{self.num_tenants} tenants in {num_lines} SLO classes are too many to be told apart")
        self._links = IndexLinks(len(demands))
        self._ring = TenantRing(num_bands * self.num_tenants)
        self._num_flows = num_lines * self.num_tenants
        self._flows = <IndexList*>malloc(self._num_flows * sizeof(IndexList))
        if self._flows == NULL:
            raise MemoryError()
        for i in range(self._num_flows):
            self._flows[i] = new_list()

    def __dealloc__(self):
        free(self._flows)

    cdef void push(self, int32_t row, int32_t line, int32_t band) noexcept nogil:
        cdef int32_t tenant = self.rank(row)
        self._links.push_back(&self._flows[line * self.num_tenants + tenant], row)
        self._ring.add(band * self.num_tenants + tenant)

    cdef void remove(self, int32_t row, int32_t line, int32_t band, int32_t first, int32_t end) noexcept nogil:
        cdef int32_t tenant = self.rank(row), i
        self._links.remove(&self._flows[line * self.num_tenants + tenant], row)
        for i in range(first, end):
            if self.head(i, tenant) != NONE:
                return
        self._ring.discard(band * self.num_tenants + tenant)

    cdef int32_t next_tenant(self, int32_t band, int32_t last) noexcept nogil:
        cdef int32_t begin = band * self.num_tenants
        return self._ring.next_in(begin, begin + self.num_tenants, begin + last) - begin

    cdef int check(self, int64_t size) except -1 nogil:
        cdef int32_t i
        cdef int64_t found = 0
        self._ring.check()
        for i in range(self._num_flows):
            self._links.check_list(&self._flows[i])
            found += self._flows[i].size
        return broken("TenantFlows: the flows hold not all rows that wait") if found != size else 0
