"""Urgency by age, with a head start for classes, as BLIS's priority policies score it.

The score is base + age_weight * (clock - arrival). All requests age alike, so their order never changes: the score of
a request that arrived at a compares as a - base / age_weight does, which is independent of the clock. Source:
inference-sim (BLIS), sim/priority.go; there one base serves all requests, without effect on the order, and here each
SLO class has one.
"""
from libc.stdlib cimport calloc, free
cimport cython


AGE_WEIGHT = 1e-6               # per microsecond: a point a second
LONGEST_NS = 2**61              # longest head start, so that keys fit into int64


@cython.final
cdef class Scores(Ranking):
    """The order of one queue.

    context : ReplicaContext.
    base : {SLO class: score of a request that has just arrived}; 0 for all other classes.
    age_weight : score per microsecond of age.
    is_reversed : the least urgent goes first; among equals, still the one that arrived first.
    """

    def __init__(self, context, base, double age_weight, bint is_reversed):
        cdef const Request[::1] requests = context.requests
        cdef const Demand[::1] demands = context.demands
        self._owners = (context.requests, context.demands)
        self._requests = &requests[0] if len(requests) else NULL
        self._demands = &demands[0] if len(demands) else NULL
        self._is_reversed = is_reversed
        self._sign = (age_weight > 0) - (age_weight < 0)
        names = [None, *(str(name) for name in context.labels.get("slo_class", ()))]
        scores = [base.get(name, 0.0) for name in names]
        self._head_start = <int64_t*>calloc(len(names), sizeof(int64_t))
        if self._head_start == NULL:
            raise MemoryError()
        places = sorted(set(scores))
        for i, score in enumerate(scores):
            self._head_start[i] = (places.index(score) if age_weight == 0
                                   else head_start_ns(score, age_weight))

    def __dealloc__(self):
        free(self._head_start)

    cdef int64_t key(self, int32_t row) noexcept nogil:
        return -self.place(row) if self._is_reversed else self.place(row)


def head_start_ns(double base, double age_weight):
    """Return the extra age, in ns, that a request with base 0 needs to score as much."""
    return round(min(max(1000 * base / abs(age_weight), -LONGEST_NS), LONGEST_NS))
