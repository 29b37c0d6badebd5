"""`always_busiest`: the worst choice on purpose, to measure the loss by a bad policy."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.routing.base cimport Router
from simulator.signals.load cimport effective_load

import msgspec


class AlwaysBusiestParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The largest effective load wins, the lowest number among equals.

    Effective load: requests waiting + running + in flight.
    Source: BLIS's always-busiest (inference-sim, sim/routing.go).
    """


@cython.final
cdef class AlwaysBusiest(Router):
    """The replica that has most to do."""

    Parameters = AlwaysBusiestParameters

    def __init__(self, parameters, context):
        self.reads_state = self.has_scores = True
        self.view.wants_counts = True

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t chosen = -1, i
        cdef int64_t most = -1, load
        self.view.look(now_ns)
        for i in range(self.num_replicas):
            if self.view.accounts[i].is_routable:
                load = effective_load(self.view, i)
                if load > most:
                    chosen, most = i, load
        return chosen

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t i
        Router.score(self, row, now_ns, scores)
        for i in range(self.num_replicas):
            if self.view.accounts[i].is_routable:
                scores[i] = -scores[i]
        return 0
