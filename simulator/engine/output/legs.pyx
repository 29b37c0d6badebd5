"""The legs of requests: each stay of a request at a replica."""
from libc.stdlib cimport free, malloc
from libc.string cimport memset
cimport cython

from simulator.domain.journey cimport LEG_UNDERWAY

import numpy as np

from simulator.domain import records

cdef enum:
    FIRST_ROOM = 1024

BYTES = f"V{records.LEG.itemsize}"


@cython.final
cdef class LegBook:
    """The account of all legs.

    num_requests : of the workload.
    """

    def __cinit__(self, int64_t num_requests):
        cdef int64_t i
        self._num_requests = num_requests
        self._last = <int64_t*>malloc((num_requests + 1) * sizeof(int64_t))
        if self._last == NULL:
            raise MemoryError()
        for i in range(num_requests):
            self._last[i] = -1

    def __dealloc__(self):
        free(self._last)

    cdef int _grow(self) except -1 nogil:
        cdef Leg[::1] grown
        with gil:
            rows = np.empty(max(2 * self._room, FIRST_ROOM), records.LEG)
            if self.size:               # as bytes: records are copied field by field
                rows.view(BYTES)[:self.size] = self._rows.view(BYTES)
            grown = rows
            self._rows, self._legs, self._room = rows, &grown[0], len(rows)
        return 0

    cdef int sent(self, int32_t row, int32_t replica, int8_t role, int64_t now_ns) except -1 nogil:
        cdef Leg* leg
        if self.size == self._room:
            self._grow()
        leg = &self._legs[self.size]
        memset(leg, 0, sizeof(Leg))
        leg.request, leg.replica, leg.role, leg.sent_ns = row, replica, role, now_ns
        leg.enqueued_ns = leg.scheduled_ns = leg.ended_ns = -1
        self._last[row] = self.size
        self.size += 1
        return 0

    cdef void enqueued(self, int32_t row, int64_t now_ns) noexcept nogil:
        self._legs[self._last[row]].enqueued_ns = now_ns

    cdef void scheduled(self, int32_t row, int32_t cached_tokens, int32_t external_tokens,
                        int64_t now_ns) noexcept nogil:
        cdef Leg* leg = &self._legs[self._last[row]]
        if leg.scheduled_ns < 0:
            leg.scheduled_ns, leg.cached_tokens, leg.external_tokens = now_ns, cached_tokens, external_tokens

    cdef void ended(self, int32_t row, int8_t how, int64_t now_ns) noexcept nogil:
        cdef Leg* leg
        if self._last[row] >= 0:                    # else it never reached a replica
            leg = &self._legs[self._last[row]]
            if leg.how == LEG_UNDERWAY:
                leg.how, leg.ended_ns = how, now_ns

    def table(self):
        """Return all legs, structured array (legs,), `records.LEG`: the book's own array."""
        return np.empty(0, records.LEG) if self._rows is None else self._rows[:self.size]
