"""Queues in which requests sink by the time that they have spent in service: a multi-level feedback queue.

Queue i has a quantum; who has spent more than that in service goes on in queue i + 1, with what is over. Where one
stands follows from instants alone, so that nobody is visited in between.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.index_heap cimport IndexHeap
from simulator.scheduling.ranked cimport RequestRanking


@cython.final
cdef class FeedbackQueues(RequestRanking):
    """Keys are numbers of queues.

    context : ReplicaContext.
    quantum_ns : of the first queue; ratio : of each quantum to the one before.
    """

    def __init__(self, context, double quantum_ns, double ratio):
        cdef int32_t i
        for i in range(LAST_QUEUE + 1):
            self.quanta_ns[i] = round(min(quantum_ns * ratio**i, 9e18))
        self.longest = IndexHeap(len(context.requests))
        self.progress = <Progress*>calloc(len(context.requests) + 1, sizeof(Progress))
        if self.progress == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.progress)

    cdef int64_t key(self, int32_t row) noexcept nogil:
        return self.progress[row].queue

    cdef void count(self, int32_t row, int32_t change) noexcept nogil:
        if change > 0 and (self.progress[row].queue > 0 or self.progress[row].spent_ns > 0):
            self.longest.push(row, self.progress[row].since_ns, 0, self.demands[row].tie_rank)
        else:
            self.longest.remove(row)

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

    cdef int32_t starving(self, int64_t since_ns) noexcept nogil:
        if self.longest.size == 0 or self.progress[self.longest.top()].since_ns > since_ns:
            return -1
        return self.longest.top()
