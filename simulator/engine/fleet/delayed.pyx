"""Requests on their way to the waiting queues of replicas that do not see each other, in order of each replica.

A delay that depends on the request alone shifts its arrival at the queue. Replicas then still act apart, so that many
arrivals of one can be served before the next one is touched, and threads can share the replicas. The order at a queue
is that of events: by time; at one time requests without delay first, then by their place in the workload.
"""
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.heap cimport first_ns, pop_row, push_row
from simulator.domain.request cimport COMPLETED
from simulator.engine.fleet.events cimport ENQUEUE

cdef int64_t DELAYED = 1 << 32          # of a number in a heap, beside the row: not at the queue at once


@cython.final
cdef class Delayed:
    """The requests of a fleet on their way.

    fleet : its replicas have delays, and no front ends.
    """

    def __init__(self, Fleet fleet):
        self._fleet = fleet
        self._heaps = <RowHeap*>calloc(fleet.num_replicas + 1, sizeof(RowHeap))
        self._left_ns = <int64_t*>calloc(fleet.num_replicas + 1, sizeof(int64_t))
        if self._heaps == NULL or self._left_ns == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef int32_t index
        for index in range(self._fleet.num_replicas if self._heaps != NULL else 0):
            free(self._heaps[index].entries)
        free(self._heaps)
        free(self._left_ns)

    cdef int add(self, int32_t row, int32_t index, int64_t now_ns) except -1 nogil:
        cdef int64_t delay_ns = queue_delay_ns(&self._fleet.entries[index], self._fleet.requests[row].prompt_tokens)
        self._deliver(index, now_ns)
        return push_row(&self._heaps[index], now_ns + delay_ns, DELAYED * (delay_ns > 0) + row)

    cdef int deliver(self, int32_t first, int32_t last, int64_t until_ns) except -1 nogil:
        cdef int32_t index
        for index in range(first, last):
            self._deliver(index, until_ns)
        return 0

    cdef int _deliver(self, int32_t index, int64_t until_ns) except -1 nogil:
        cdef RowHeap* heap = &self._heaps[index]
        cdef int64_t now_ns = first_ns(heap)
        cdef int32_t row
        while now_ns < until_ns or (now_ns == until_ns and heap.size > 0 and heap.entries[0].number < DELAYED):
            row = <int32_t>(pop_row(heap).number & (DELAYED - 1))
            self._fleet.enqueue(row, now_ns)
            if self._fleet.requests[row].status >= COMPLETED:
                self._left_ns[index] = now_ns
            now_ns = first_ns(heap)
        return 0

    cdef int64_t next_ns(self, int32_t first, int32_t last) noexcept nogil:
        cdef int64_t next_ns = NEVER_NS
        cdef int32_t index
        for index in range(first, last):
            next_ns = min(next_ns, first_ns(&self._heaps[index]))
        return next_ns

    cdef int64_t left_ns(self) noexcept nogil:
        cdef int64_t left_ns = 0
        cdef int32_t index
        for index in range(self._fleet.num_replicas):
            left_ns = max(left_ns, self._left_ns[index])
        return left_ns

    cdef int leave_to_events(self) except -1 nogil:
        cdef int32_t index
        cdef int64_t now_ns
        for index in range(self._fleet.num_replicas):
            while self._heaps[index].size > 0:
                now_ns = first_ns(&self._heaps[index])
                self._fleet.events.push(
                    now_ns, ENQUEUE, ENQUEUE, index, pop_row(&self._heaps[index]).number & (DELAYED - 1))
        return 0
