"""Base of routers that score all replicas for each request and take the best."""
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from simulator.routing.parts.pick cimport pick_highest


cdef class ScoredRouter(Router):
    """Base of routers in which the largest score wins; one overrides `score`.

    Equal scores have the same chance.
    """

    def __cinit__(self, parameters, context, *_, **__):
        self.preference = <double*>calloc(self.num_replicas, sizeof(double))
        if self.preference == NULL:
            raise MemoryError()
        self.reads_state = self.has_scores = True

    def __dealloc__(self):
        free(self.preference)

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        self.score(row, now_ns, self.preference)
        return self.pick_preferred()

    cdef int32_t pick_preferred(self) noexcept nogil:
        return pick_highest(self.preference, self.num_replicas, self.draws)
