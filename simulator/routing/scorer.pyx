"""How good each replica is for a request, from one point of view: the base of all scorers."""
from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from simulator.domain.request cimport Demand, Request
from simulator.routing.pick cimport highest, lowest

import numpy as np


cdef class Scorer:
    """Base of all scorers; one overrides `rate`, `note` or both.

    A scorer is built as `Scorer(parameters, context)`, with its own frozen `Parameters` and a `RoutingContext`.
    """

    def __cinit__(self, parameters, context, *_, **__):
        cdef const Request[::1] requests = context.workload.requests
        cdef const Demand[::1] demands = context.workload.demands
        self.view = context.view
        self.num_replicas = self.view.num_replicas
        self._owners = context.workload
        if len(requests):
            self.requests, self.demands = &requests[0], &demands[0]
        self.content = context.content
        self.values = <double*>calloc(self.num_replicas, sizeof(double))
        if self.values == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.values)

    cdef int note(self, int32_t replica, bint is_open) except -1 nogil:
        return 0

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        return 1

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return 0

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return 0

    cdef int closed(self, int32_t replica, int64_t now_ns) except -1 nogil:
        return 0

    # The face for tests and exploration.

    def scores(self, row, now_ns):
        """Return the score of each replica for a request, as `weighted` would ask; of closed ones: NaN."""
        cdef int32_t i
        self.view.look(now_ns)
        for i in range(self.num_replicas):
            self.note(i, self.view.accounts[i].is_routable)
        is_any = self.rate(row, now_ns)
        result = np.zeros(self.num_replicas)
        for i in range(self.num_replicas):
            if not self.view.accounts[i].is_routable:
                result[i] = np.nan
            elif is_any:
                result[i] = self.values[i]
        return result

    def note_sent(self, row, replica, now_ns):
        """Tell that a request was sent to a replica."""
        self.sent(row, replica, now_ns)

    def note_left(self, row, replica, now_ns):
        """Tell that a request is gone from a replica."""
        self.left(row, replica, now_ns)

    def note_closed(self, replica, now_ns):
        """Tell that a replica may not be routed to any more."""
        self.closed(replica, now_ns)


cdef class LowestBest(Scorer):
    """Base of scorers that rank replicas between the highest and the lowest of some level.

    score = (highest - level) / (highest - lowest), over the replicas that can be routed to; 1 if all are equal.
    """

    def __cinit__(self, parameters, context, *_, **__):
        self.levels = <double*>calloc(self.num_replicas, sizeof(double))
        if self.levels == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.levels)

    cdef double level(self, int32_t replica) noexcept nogil:
        return 0.0

    cdef int note(self, int32_t replica, bint is_open) except -1 nogil:
        self.levels[replica] = self.level(replica) if is_open else NAN
        return 0

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef double most = highest(self.levels, self.num_replicas)
        cdef double width = most - lowest(self.levels, self.num_replicas)
        cdef int32_t i
        if width > 0:
            for i in range(self.num_replicas):
                self.values[i] = (most - self.levels[i]) / width
        else:
            for i in range(self.num_replicas):
                self.values[i] = 1.0
        return 1
