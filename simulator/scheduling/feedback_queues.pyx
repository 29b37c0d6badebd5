"""Queues in which requests sink by the time that they have spent in service: a multi-level feedback queue.

Queue i has a quantum; a request that has spent more than that in service goes on in queue i + 1, with the excess. Its
queue follows from instants alone, so no request is visited in between.
"""
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.memory cimport resize


@cython.final
cdef class FeedbackQueues(RequestRanking):
    """Keys are numbers of queues.

    context : ReplicaContext.
    quantum_ns : quantum of the first queue; ratio : ratio of each quantum to the one before.
    """

    def __init__(self, context, double quantum_ns, double ratio):
        cdef int32_t i
        for i in range(LAST_QUEUE + 1):
            self.quanta_ns[i] = round(min(quantum_ns * ratio**i, 9e18))
        self.progress = <Progress*>calloc(len(context.requests) + 1, sizeof(Progress))
        if self.progress == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.progress)
        free(self._since)

    cdef int64_t key(self, int32_t row) noexcept nogil:
        return self.progress[row].queue

    cdef void count(self, int32_t row, int32_t change) noexcept nogil:
        cdef Progress* it = &self.progress[row]
        it.is_waiting = change > 0
        if it.is_waiting and (it.queue > 0 or it.spent_ns > 0):
            self._line_up(row)

    cdef int _line_up(self, int32_t row) except -1 nogil:
        """Record the start of a wait: mostly now, behind all others."""
        cdef int32_t i, room
        cdef Since entry
        if self._num_since == self._room:
            self._forget_gone()
            room = 2 * self._num_since + 64                 # amortised: half the room is free at the next cleanup
            if room > self._room:
                resize(&self._since, room * sizeof(Since))
                self._room = room
        entry.since_ns, entry.row = self.progress[row].since_ns, row
        i = self._num_since
        while i > self._first and self._since[i - 1].since_ns > entry.since_ns:
            self._since[i] = self._since[i - 1]
            i -= 1
        self._since[i] = entry
        self._num_since += 1
        return 0

    cdef void _forget_gone(self) noexcept nogil:
        cdef int32_t kept = 0, i
        for i in range(self._first, self._num_since):
            if self._may_rise(&self._since[i]):
                self._since[kept] = self._since[i]
                kept += 1
        self._first, self._num_since = 0, kept

    cdef bint _may_rise(self, const Since* it) noexcept nogil:
        cdef const Progress* progress = &self.progress[it.row]
        return progress.is_waiting and progress.since_ns == it.since_ns and (
            progress.queue > 0 or progress.spent_ns > 0)

    cdef void join(self, int32_t row, int64_t now_ns, double service_ns) noexcept nogil:
        cdef Progress* it = &self.progress[row]
        it.since_ns, it.spent_ns, it.queue = now_ns, 0, 0
        while it.queue < LAST_QUEUE and <double>self.quanta_ns[it.queue] < service_ns:
            it.queue += 1

    cdef Progress at(self, int32_t row, int64_t now_ns) noexcept nogil:
        cdef Progress it = self.progress[row]
        it.spent_ns += now_ns - it.since_ns
        it.since_ns = now_ns
        while it.queue < LAST_QUEUE and it.spent_ns > self.quanta_ns[it.queue]:
            it.spent_ns -= self.quanta_ns[it.queue]
            it.queue += 1
        return it

    cdef void note(self, int32_t row, int64_t now_ns) noexcept nogil:
        self.progress[row] = self.at(row, now_ns)

    cdef int32_t first_end(self, int32_t row, int64_t* until_ns) noexcept nogil:
        cdef const Progress* it = &self.progress[row]
        until_ns[0] = self.next_end(it.queue, it.since_ns - it.spent_ns)
        return it.queue

    cdef int32_t starving(self, int64_t since_ns) noexcept nogil:
        while self._first < self._num_since and self._since[self._first].since_ns <= since_ns:
            if self._may_rise(&self._since[self._first]):
                return self._since[self._first].row
            self._first += 1
        return -1
