"""Dynamo's queue in front of its router: requests wait while the replicas have enough to prefill.

Source of the rules: see `RouterQueueParameters`. Order of equal requests: the first that came.
"""
from libc.math cimport INFINITY
from libc.stdint cimport INT64_MIN, int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
cimport cython

from simulator.core.index_heap cimport IndexHeap
from simulator.domain.request cimport Demand, Request
from simulator.routing.policies.dynamo cimport Dynamo
from simulator.routing.queueing.base cimport GOES, REFUSED, WAITS, RouterQueue

import numpy as np

from simulator.domain.router_queue import RouterQueueParameters

ORDERS = ("fcfs", "lcfs", "wspt")

cdef enum Order:
    FCFS = 0
    LCFS = 1
    WSPT = 2

cdef enum:
    NO_LIMIT_TOKENS = 10000000          # tokens of a batch of a replica that reports none, as in Dynamo

cdef int64_t MISSING = INT64_MIN        # workload.limits.MISSING
cdef int64_t LONGEST_JUMP_NS = 1000000000000000         # 1e6 s
cdef int64_t LATEST_NS = 9100000000000000000            # later than any arrival, by more than the longest jump
cdef int64_t MOST_URGENT = (<int64_t>1 << 31) - 1       # the largest strict_priority


cdef struct Line:               # a queue for some requests
    int32_t order               # Order
    double threshold            # of busy replicas, in units of the tokens of a batch; infinity: none, as in the next
    double threshold_tokens
    int64_t min_tokens          # uncached tokens of its requests
    int64_t quantum             # tokens
    int64_t deficit             # tokens that it may still pass on
    int64_t max_requests        # waiting ones for each replica; -1: any number; also for the next two
    int64_t max_prompt_tokens
    int64_t max_cached_tokens
    int64_t requests            # that wait, and their prompt and cached tokens
    int64_t prompt_tokens
    int64_t cached_tokens


cdef struct Waiting:            # a row
    int32_t line                # -1: it does not wait
    int32_t cost                # uncached tokens, at least 1; and cached ones
    int32_t cached


cdef inline bint is_over(int64_t waiting, int64_t limit, int64_t num_replicas) noexcept nogil:
    """Return whether so many waiting requests or tokens reach a limit per replica; -1: no limit."""
    return limit >= 0 and waiting >= limit * num_replicas


cdef inline int64_t descending(double value) noexcept nogil:
    """Return a key >= 0, the smaller the larger the value > 0 is: the order of doubles > 0 is that of their bits."""
    cdef int64_t bits
    memcpy(&bits, &value, sizeof(bits))
    return LATEST_NS - bits


@cython.final
cdef class KvQueue(RouterQueue):
    """The queue of a router, empty at first.

    parameters : RouterQueueParameters. router : Dynamo, with an account of its own.
    workload : the requests; priority_jump_s, in ns, and strict_priority among its facts.
    """

    Parameters = RouterQueueParameters

    cdef Dynamo _router
    cdef const Request* _requests       # [row] borrowed, like _demands
    cdef const Demand* _demands
    cdef const int64_t* _jumps_ns       # [row] limits.MISSING: 0; NULL: all are 0; as in the next
    cdef const int64_t* _priorities
    cdef double _busy_ratio
    cdef Line* _lines                   # [_num_lines] by SLO class, then by min_tokens
    cdef int32_t _num_lines
    cdef int32_t* _first_line           # [class + 1] first and last queue of requests with an SLO class
    cdef int32_t* _last_line
    cdef list _heaps                    # [line] IndexHeap
    cdef void** _heap_of                # its elements, borrowed
    cdef Waiting* _waiting              # [row]
    cdef int32_t _num_offered           # so far
    cdef int32_t _turn                  # line with which the next round begins
    cdef int32_t _carries               # line that may spend the rest of its deficit before; -1: none
    cdef object _owners                 # of the borrowed arrays

    def __init__(self, parameters, Dynamo router, workload):
        cdef const Request[::1] requests = workload.requests
        cdef const Demand[::1] demands = workload.demands
        cdef const int64_t[::1] column
        cdef int32_t i
        self._router, self._busy_ratio, self._carries = router, parameters.busy_ratio, -1
        self._owners = [workload]
        if len(requests):
            self._requests, self._demands = &requests[0], &demands[0]
        for i, name in enumerate(("priority_jump_s", "strict_priority")):
            values = workload.facts.get(name)
            if values is not None and len(values):
                column = np.ascontiguousarray(values, np.int64)
                self._owners.append(column)
                if i == 0:
                    self._jumps_ns = &column[0]
                else:
                    self._priorities = &column[0]
        self._make_lines(sorted(parameters.lines, key=lambda one: (one.slo_class, one.min_tokens)),
                         workload.labels.get("slo_class", ()), len(requests))
        self._waiting = <Waiting*>calloc(max(len(requests), 1), sizeof(Waiting))
        if self._waiting == NULL:
            raise MemoryError()
        for i in range(<int32_t>len(requests)):
            self._waiting[i].line = -1

    def _make_lines(self, lines, labels, num_rows):
        cdef int32_t i, code
        cdef Line* line
        self._num_lines, self._heaps = <int32_t>len(lines), [IndexHeap(max(num_rows, 1)) for _ in lines]
        self._lines = <Line*>calloc(len(lines), sizeof(Line))
        self._heap_of = <void**>calloc(len(lines), sizeof(void*))
        self._first_line = <int32_t*>calloc(len(labels) + 1, sizeof(int32_t))
        self._last_line = <int32_t*>calloc(len(labels) + 1, sizeof(int32_t))
        if self._lines == NULL or self._heap_of == NULL or self._first_line == NULL or self._last_line == NULL:
            raise MemoryError()
        for i, given in enumerate(lines):
            line = &self._lines[i]
            self._heap_of[i] = <void*>self._heaps[i]
            line.order, line.min_tokens, line.quantum = ORDERS.index(given.order), given.min_tokens, given.quantum
            line.threshold = INFINITY if given.threshold is None else given.threshold
            line.threshold_tokens = INFINITY if given.threshold_tokens is None else given.threshold_tokens
            line.max_requests, line.max_prompt_tokens, line.max_cached_tokens = (
                -1 if limit is None else limit
                for limit in (given.max_requests, given.max_prompt_tokens, given.max_cached_tokens))
        for code, label in enumerate(("", *labels)):
            family = [k for k, given in enumerate(lines) if given.slo_class == label] or [
                k for k, given in enumerate(lines) if given.slo_class == ""]
            self._first_line[code], self._last_line[code] = family[0], family[len(family) - 1]

    def __dealloc__(self):
        free(self._lines)
        free(self._heap_of)
        free(self._first_line)
        free(self._last_line)
        free(self._waiting)

    cdef int offer(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int64_t prompt = self._requests[row].prompt_tokens, priority = 0, cached, cost, num_open
        cdef int32_t index
        cdef Line* line
        self._router.update(now_ns)
        cached = min(<int64_t>self._router.most_cached(row, now_ns) * self._router.index.block_size, prompt)
        cost = max(prompt - cached, 1)
        index = self._line_of(row, cost)
        line = &self._lines[index]
        if not self._is_busy(line):
            return GOES
        num_open = self._num_open()
        if (is_over(line.requests, line.max_requests, num_open)
                or is_over(line.prompt_tokens, line.max_prompt_tokens, num_open)
                or is_over(line.cached_tokens, line.max_cached_tokens, num_open)):
            return REFUSED
        if self._priorities != NULL and self._priorities[row] != MISSING:
            priority = self._priorities[row]
        self._num_offered += 1
        (<IndexHeap>self._heap_of[index]).push(
            row, MOST_URGENT - priority, self._key(row, line, cost, now_ns), self._num_offered)
        self._waiting[row].line, self._waiting[row].cost, self._waiting[row].cached = (
            index, <int32_t>cost, <int32_t>cached)
        line.requests += 1
        line.prompt_tokens += prompt
        line.cached_tokens += cached
        self.size += 1
        return WAITS

    cdef int32_t next(self, int64_t now_ns) except -2 nogil:
        cdef int32_t index, row
        if self.size == 0:
            return -1
        self._router.update(now_ns)
        index = self._next_line()
        if index < 0:
            return -1
        row = (<IndexHeap>self._heap_of[index]).top()
        self._lines[index].deficit -= self._waiting[row].cost
        self._take(row)
        self._turn = (index + 1) % self._num_lines
        self._carries = index if self._lines[index].deficit > 0 else -1
        return row

    cdef int remove(self, int32_t row) except -1 nogil:
        if self._waiting[row].line >= 0:
            self._take(row)
        return 0

    cdef int32_t _line_of(self, int32_t row, int64_t uncached) noexcept nogil:
        cdef int32_t code = self._demands[row].slo_class + 1, index = self._last_line[code]
        while index > self._first_line[code] and self._lines[index].min_tokens > uncached:
            index -= 1
        return index

    cdef int32_t _num_open(self) noexcept nogil:
        cdef int32_t i, num_open = 0
        for i in range(self._router.num_replicas):
            num_open += self._router.view.accounts[i].is_routable != 0
        return num_open

    cdef bint _is_busy(self, const Line* line) noexcept nogil:
        """Return whether requests of a line have to wait; without an open replica the router is asked at once."""
        cdef int32_t i, num_open = 0, num_busy = 0, batch_tokens
        cdef double tokens
        for i in range(self._router.num_replicas):
            if self._router.view.accounts[i].is_routable:
                num_open += 1
                batch_tokens = self._router.view.states[i].max_batched_tokens
                tokens = <double>self._router.account.remaining(i)
                num_busy += (tokens > line.threshold_tokens
                             or tokens > line.threshold * (batch_tokens if batch_tokens > 0 else NO_LIMIT_TOKENS))
        return num_open > 0 and num_busy >= self._busy_ratio * num_open

    cdef int64_t _key(self, int32_t row, const Line* line, int64_t cost, int64_t now_ns) noexcept nogil:
        """Return a number >= 0; the request with the least goes first."""
        cdef int64_t jump_ns = 0
        if self._jumps_ns != NULL and self._jumps_ns[row] != MISSING:
            jump_ns = self._jumps_ns[row]
        if line.order == FCFS:
            return now_ns + LONGEST_JUMP_NS - jump_ns
        if line.order == LCFS:
            return LATEST_NS - now_ns - jump_ns
        return descending((1.0 + jump_ns / 1e9) / cost)

    cdef bint _may_go(self, int32_t line) noexcept nogil:
        return self._lines[line].requests > 0 and not self._is_busy(&self._lines[line])

    cdef int32_t _next_line(self) noexcept nogil:
        """Return the line with the next request; -1: all that may go are empty. Deficit round robin."""
        cdef int32_t carries = self._carries, index
        self._carries = -1
        if not self._any_may_go():
            return -1
        if carries >= 0 and self._may_go(carries) and self._can_pay(carries):
            return carries
        index = self._first_that_can_pay(adds_quantum=True)
        if index < 0:                                   # a whole round served none
            self._add_rounds()
            index = self._first_that_can_pay(adds_quantum=False)
        return index

    cdef int32_t _first_that_can_pay(self, bint adds_quantum) noexcept nogil:
        """Return the first line of a round with enough deficit; adds_quantum: each line that lacks it gets more."""
        cdef int32_t offset, index
        for offset in range(self._num_lines):
            index = (self._turn + offset) % self._num_lines
            if not self._may_go(index):
                continue
            if adds_quantum and not self._can_pay(index):
                self._lines[index].deficit += self._lines[index].quantum
            if self._can_pay(index):
                return index
        return -1

    cdef bint _can_pay(self, int32_t line) noexcept nogil:
        return self._lines[line].deficit >= self._first_cost(line)

    cdef bint _any_may_go(self) noexcept nogil:
        cdef int32_t i
        for i in range(self._num_lines):
            if self._may_go(i):
                return True
        return False

    cdef int64_t _first_cost(self, int32_t line) noexcept nogil:
        return self._waiting[(<IndexHeap>self._heap_of[line]).top()].cost

    cdef void _add_rounds(self) noexcept nogil:
        """Add the quanta of the fewest rounds after which some line can pay."""
        cdef int64_t rounds = -1, missing
        cdef int32_t i
        for i in range(self._num_lines):
            if self._may_go(i):
                missing = self._first_cost(i) - self._lines[i].deficit
                missing = (missing + self._lines[i].quantum - 1) // self._lines[i].quantum
                rounds = missing if rounds < 0 else min(rounds, missing)
        for i in range(self._num_lines):
            if self._may_go(i):
                self._lines[i].deficit += rounds * self._lines[i].quantum

    cdef void _take(self, int32_t row) noexcept nogil:
        cdef Line* line = &self._lines[self._waiting[row].line]
        (<IndexHeap>self._heap_of[self._waiting[row].line]).remove(row)
        line.requests -= 1
        if line.requests == 0:
            line.deficit = 0
        line.prompt_tokens -= self._requests[row].prompt_tokens
        line.cached_tokens -= self._waiting[row].cached
        self._waiting[row].line = -1
        self.size -= 1

    cpdef int check(self) except -1:
        """Raise RuntimeError if the lines do not agree with their heaps."""
        cdef int32_t i
        cdef int64_t total = 0
        for i in range(self._num_lines):
            (<IndexHeap>self._heap_of[i]).check()
            if self._lines[i].requests != (<IndexHeap>self._heap_of[i]).size:
                raise RuntimeError("KvQueue: a line has not the requests of its heap")
            total += self._lines[i].requests
        if total != self.size:
            raise RuntimeError("KvQueue: the lines have not all requests that wait")
        return 0

    # The face for tests and exploration.

    def pending(self):
        """Return (requests, prompt tokens) that wait, by line."""
        return [(self._lines[i].requests, self._lines[i].prompt_tokens) for i in range(self._num_lines)]
