"""The waiting queue of a replica: first come first served, or sorted; rows may be parked by their cause to wait."""
from libc.stdint cimport INT32_MAX
from libc.stdlib cimport free, malloc
cimport cython

from simulator.core.errors cimport out_of_memory
from simulator.core.row_list cimport add_row


cdef class Ranking:
    """Base of the orders that policies define for their queues; see waiting_queue.pxd."""

    cdef int64_t key(self, int32_t row) noexcept nogil:
        return 0

    cdef void count(self, int32_t row, int32_t change) noexcept nogil:
        pass


@cython.final
cdef class WaitingQueue:
    """Rows that wait for a place in a replica's running list.

    requests, demands : (n,) records of the workload, which must outlive the queue.
    order : QueueOrder.
    knows_places : sorted, any row can leave in O(log size), for 4 bytes for each request of the workload.
    """

    def __init__(self, const Request[::1] requests, const Demand[::1] demands, int order, bint knows_places=False):
        self._requests = &requests[0] if len(requests) else NULL
        self._demands = &demands[0] if len(demands) else NULL
        self._order = order
        self._heap = None if order == FIRST_COME else IndexHeap(len(requests) if knows_places else 0)
        self._mask = -1

    def __dealloc__(self):
        free(self._ring)
        free(self._aside.rows)

    cdef void rank_by(self, Ranking ranking) noexcept:
        self._ranking = ranking

    cdef int let_park(self, int32_t num_adapters, bint has_grammars) except -1 nogil:
        self._knows_adapters, self._knows_grammars = num_adapters > 0, has_grammars
        with gil:
            self._move_to_causes(num_adapters + 1)
        return 0

    cdef int _move_to_causes(self, int32_t num_causes) except -1:
        cdef list rows = self.rows()
        while self.size > 0:
            self.pop()
        free(self._ring)
        self._ring, self._mask = NULL, -1
        self._causes = CauseQueue(num_causes)
        for row in rows:
            self.push(row)
        return 0

    cdef int _push_cause(self, int32_t row, bint is_front) except -1 nogil:
        cdef int32_t adapter = self._demands[row].adapter, cause = 0
        if self._knows_adapters and not (self._knows_grammars and self._demands[row].grammar >= 0):
            cause = adapter + 1
        if self._order != FIRST_COME:
            return self._causes.push(row, cause, self._key(row), self._arrival(row), self._demands[row].tie_rank)
        self._causes.push(row, cause, self._front - 1 if is_front else self._back, 0, 0)
        self._front -= is_front
        self._back += not is_front
        return 0

    cdef int push(self, int32_t row) except -1 nogil:
        if self._causes is not None:
            self._push_cause(row, False)
        elif self._order != FIRST_COME:
            self._heap.push(row, self._key(row), self._arrival(row), self._demands[row].tie_rank)
        else:
            if self.size > self._mask:
                self._grow()
            self._ring[(self._head + self.size) & self._mask] = row
        self._count(row, 1)
        return 0

    cdef int64_t _key(self, int32_t row) noexcept nogil:
        if self._order == BY_RANKING:
            return self._ranking.key(row)
        if self._order == BY_PRIORITY or self._order == PRIORITY_HERE:
            return self._demands[row].priority
        if self._order == REVERSE_PRIORITY:
            return ~self._demands[row].priority
        if self._order == SHORTEST_FIRST:
            return self._requests[row].prompt_tokens
        if self._order == SHORTEST_OUTPUT and self._demands[row].expected_tokens < 0:
            return INT32_MAX
        return self._demands[row].expected_tokens if self._order == SHORTEST_OUTPUT else 0

    cdef int64_t _arrival(self, int32_t row) noexcept nogil:
        cdef int64_t arrival_ns = self._requests[row].arrival_ns
        if self._order == PRIORITY_HERE:
            return self._requests[row].enqueued_ns
        return -arrival_ns if self._order == LATEST_FIRST else arrival_ns

    cdef bint precedes(self, int32_t row, int32_t other) noexcept nogil:
        if self._order == FIRST_COME:
            return False
        if self._key(row) != self._key(other):
            return self._key(row) < self._key(other)
        if self._arrival(row) != self._arrival(other):
            return self._arrival(row) < self._arrival(other)
        return self._demands[row].tie_rank < self._demands[other].tie_rank

    cdef int push_front(self, int32_t row) except -1 nogil:
        if self._order != FIRST_COME:
            return self.push(row)
        if self._causes is not None:
            self._push_cause(row, True)
        else:
            if self.size > self._mask:
                self._grow()
            self._head = (self._head - 1) & self._mask
            self._ring[self._head] = row
        self._count(row, 1)
        return 0

    cdef int32_t top(self) noexcept nogil:
        if self._causes is not None:
            self._causes.wake_all()
            return self._causes.first(True)
        return self._heap.top() if self._order != FIRST_COME else self._ring[self._head]

    cdef int32_t at(self, int32_t place) noexcept nogil:
        if self._order != FIRST_COME:
            return self._heap.at(place).index
        return self._ring[(self._head + place) & self._mask]

    cdef int32_t pop(self) noexcept nogil:
        cdef int32_t row = self.top()
        self._count(row, -1)
        if self._causes is not None:
            self._causes.remove(row)
            return row
        if self._order != FIRST_COME:
            return self._heap.pop()
        self._head = (self._head + 1) & self._mask
        return row

    cdef int remove(self, int32_t row) noexcept nogil:
        cdef int32_t i = 0
        if self._causes is not None or self._order != FIRST_COME:
            if (self._causes.remove(row) if self._causes is not None else self._heap.remove(row)) != 0:
                return -1
            self._count(row, -1)
            return 0
        while i < self.size and self._ring[(self._head + i) & self._mask] != row:
            i += 1
        if i == self.size:
            return -1
        while i > 0:                            # time-outs hit near the head: shift the rows in front
            self._ring[(self._head + i) & self._mask] = self._ring[(self._head + i - 1) & self._mask]
            i -= 1
        self._head = (self._head + 1) & self._mask
        self._count(row, -1)
        return 0

    cdef int set_aside(self, int32_t row) except -1 nogil:
        add_row(&self._aside, row)
        if self._causes is not None:
            self._causes.set_aside(row)
            self._count(row, -1)
        else:
            self.pop()
        return 0

    cdef int _put_back(self) except -1 nogil:
        while self._aside.size > 0:
            self._aside.size -= 1
            if self._causes is not None:
                self._causes.put_back(self._aside.rows[self._aside.size])
                self._count(self._aside.rows[self._aside.size], 1)
            else:
                self.push_front(self._aside.rows[self._aside.size])
        return 0

    cdef bint park_until(self, int32_t row, int64_t instant_ns) except -1 nogil:
        if self._causes is None:
            return False
        self._causes.park_until(row, instant_ns)
        return True

    cdef bint park_under_adapter(self, int32_t row) noexcept nogil:
        if self._causes is None:
            return False
        self._causes.move(row, self._demands[row].adapter + 1)
        return True

    cdef int _grow(self) except -1 nogil:
        cdef int32_t room = 16 if self._mask < 0 else 2 * (self._mask + 1), i
        cdef int32_t* ring = <int32_t*>malloc(room * sizeof(int32_t))
        if ring == NULL:
            return out_of_memory()
        for i in range(self.size):
            ring[i] = self._ring[(self._head + i) & self._mask]
        free(self._ring)
        self._ring = ring
        self._head = 0
        self._mask = room - 1
        return 0

    def rows(self):
        """Return the waiting rows in the order in which they would be taken (debug face)."""
        cdef int32_t i
        if self._causes is not None:
            return self._causes.rows()
        if self._order != FIRST_COME:
            return self._heap.sorted_rows()
        return [self._ring[(self._head + i) & self._mask] for i in range(self.size)]

    def check(self):
        """Raise RuntimeError if the queue is inconsistent."""
        if self._causes is not None:
            self._causes.check()
            if len(self._causes) != self.size:
                raise RuntimeError(f"WaitingQueue: {self.size} rows counted, {len(self._causes)} kept")
        elif self._heap is not None:
            self._heap.check()
