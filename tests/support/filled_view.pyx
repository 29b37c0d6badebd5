"""A view whose caches a test fills."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.routing.base cimport Router
from simulator.signals.view cimport View


cdef class FilledView(View):
    """A plain view; `cached`: {(replica, row): blocks}."""

    cdef public dict cached

    cdef int32_t cached_blocks(self, int32_t replica, int32_t row, int64_t now_ns) except -1 nogil:
        with gil:
            return self.cached.get((replica, row), 0)


cdef class FilledTiers(View):
    """A plain view with tiers; `in_turn`, `best`: [medium][replica] blocks of any prompt."""

    cdef public list in_turn, best
    cdef readonly list asked            # (media, None) or (None, order) of each question

    def __init__(self, num_replicas):
        self.has_tiers, self.asked = True, []

    cdef const int32_t* _tell(self, found) except NULL:
        for i, blocks in enumerate(found):
            for k, count in enumerate(blocks):
                self._tiered[<int>i * self.num_replicas + <int>k] = count
        return self._tiered

    cdef const int32_t* tiers_in_turn(self, int32_t row, int32_t media, int64_t now_ns) except NULL nogil:
        with gil:
            self.asked.append((media, None))
            return self._tell(self.in_turn)

    cdef const int32_t* best_tiers(self, int32_t row, const int8_t* order, int32_t num_ordered,
                                   int64_t now_ns) except NULL nogil:
        with gil:
            self.asked.append((None, [order[i] for i in range(num_ordered)]))
            return self._tell(self.best)


cdef class Misspelt(Router):
    """A router whose author meant to override `route`."""

    cdef int32_t rout(self, int32_t row, int64_t now_ns) except -2 nogil:
        return 0
