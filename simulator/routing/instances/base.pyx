"""Assignment of requests to the instances of a gateway."""
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.draws cimport mix

import numpy as np

from simulator.core.random_streams import RandomStreams

WAYS = {"round_robin": ROUND_ROBIN, "random": RANDOM, "session": SESSION}


@cython.final
cdef class Assignment:
    """Assignment of the requests of a workload to `count` instances.

    way : "round_robin": in turn, by arrival; "random": any, each equally likely; "session": by a hash of the session,
        of a request without session by a hash of its row.
    demands : structured array (requests,), `records.DEMAND`.
    seed, stream : of the random numbers.
    num_groups : groups of equally many instances; a request has an instance of its group.
    """

    def __init__(self, int32_t count, str way, demands, seed=0, stream="gateways", num_groups=1):
        cdef const Demand[::1] borrowed = demands
        cdef int32_t[::1] instances, groups
        self.count, self.each, self._way, self._owner = count, count // num_groups, WAYS[way], demands
        self.instances, self.groups = np.full(len(demands), -1, np.int32), np.zeros(len(demands), np.int32)
        instances, groups = self.instances, self.groups
        if len(demands):
            self._demands, self._instances, self._groups = &borrowed[0], &instances[0], &groups[0]
        self._draws = Draws(RandomStreams(seed).generator(stream))
        self._next = <int32_t*>calloc(num_groups, sizeof(int32_t))
        if self._next == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._next)

    cdef int32_t _assign(self, int32_t row) noexcept nogil:
        cdef int32_t group = self._groups[row], first = group * self.each, chosen
        if self._way == RANDOM:
            return first + self._draws.below(self.each)
        if self._way == SESSION and self._demands[row].session >= 0:
            return first + <int32_t>(mix(<uint64_t>self._demands[row].session + 1) % <uint64_t>self.each)
        if self._way == SESSION:
            return first + <int32_t>(mix((<uint64_t>1 << 32) + <uint64_t>row) % <uint64_t>self.each)
        chosen = self._next[group]
        self._next[group] = chosen + 1 if chosen + 1 < self.each else 0
        return first + chosen

    def assign(self, row):
        """Return the instance of a request (for tests)."""
        return self.of(row)
