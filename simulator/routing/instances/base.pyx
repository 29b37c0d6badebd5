"""Assignment of requests to the instances of a gateway."""
from libc.stdint cimport uint64_t
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
    """

    def __init__(self, int32_t count, str way, demands, seed=0, stream="gateways"):
        cdef const Demand[::1] borrowed = demands
        cdef int32_t[::1] instances
        self.count, self._way, self._owner = count, WAYS[way], demands
        self.instances = np.full(len(demands), -1, np.int32)
        instances = self.instances
        if len(demands):
            self._demands, self._instances = &borrowed[0], &instances[0]
        self._draws = Draws(RandomStreams(seed).generator(stream))

    cdef int32_t _assign(self, int32_t row) noexcept nogil:
        cdef int32_t chosen
        if self._way == RANDOM:
            return self._draws.below(self.count)
        if self._way == SESSION and self._demands[row].session >= 0:
            return <int32_t>(mix(<uint64_t>self._demands[row].session + 1) % <uint64_t>self.count)
        if self._way == SESSION:
            return <int32_t>(mix((<uint64_t>1 << 32) + <uint64_t>row) % <uint64_t>self.count)
        chosen = self._next
        self._next = chosen + 1 if chosen + 1 < self.count else 0
        return chosen

    def assign(self, row):
        """Return the instance of a request (for tests)."""
        return self.of(row)
