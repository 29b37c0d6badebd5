"""Waiting rows in order, each under the cause that may let it be passed over.

A pass over the queue admits rows in order, except rows that wait for a cause of their own: there is no slot for their
adapter, or their grammar is being compiled. With a heap for each cause, and a heap of the causes by their first row, a
pass finds the next row that it can admit without a look at the others. All nodes have places in one array, so
that a cause without rows costs five bytes.
"""
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.errors cimport broken
from simulator.core.heap cimport first_ns, pop_row, push_row
from simulator.core.memory cimport resize
from simulator.core.pairing_heap cimport is_family, link_node, new_node, unlink_node


# Spread rows over the places of a HashMap: one to one, and rows of one replica may be equal in their low bits.
cdef inline uint64_t mixed(int32_t row) noexcept nogil:
    cdef uint64_t product = <uint64_t>row * <uint64_t>0x9E3779B97F4A7C15
    return product << 32 | product >> 32


@cython.final
cdef class CauseQueue:
    """Rows in order, under causes 0 .. num_causes - 1; only the first is open."""

    def __cinit__(self, int32_t num_causes):
        cdef int32_t i
        self.num_causes, self._free = num_causes, -1
        self._node_of_row, self._open, self._closed = HashMap(), IndexHeap(), IndexHeap()
        self._roots = <int32_t*>malloc(num_causes * sizeof(int32_t))
        self._is_open = <uint8_t*>calloc(num_causes, sizeof(uint8_t))
        if self._roots == NULL or self._is_open == NULL:
            raise MemoryError()
        for i in range(num_causes):
            self._roots[i] = -1
        self._is_open[0] = True
        self._open.reserve(num_causes)
        self._closed.reserve(num_causes)

    def __dealloc__(self):
        free(self._waiters)
        free(self._nodes)
        free(self._roots)
        free(self._is_open)
        free(self._instants.entries)

    cdef int32_t _node_of(self, int32_t row) noexcept nogil:
        return self._node_of_row.get(mixed(row))

    cdef int push(self, int32_t row, int32_t cause, int64_t key, int64_t tie, int32_t rank) except -1 nogil:
        cdef int32_t node
        if self._free < 0:
            self._grow()
        node = self._free
        self._node_of_row.put(mixed(row), node)
        self._free = self._waiters[node].next_free
        self._waiters[node] = Waiter(row, cause, QUEUED, -1)
        self._nodes[node] = new_node(key, tie, rank)
        self.size += 1
        self._link(node)
        return 0

    cdef int remove(self, int32_t row) noexcept nogil:
        cdef int32_t node = self._node_of_row.remove(mixed(row))
        if node < 0:
            return -1
        if self._waiters[node].state == QUEUED:
            self._unlink(node)
        self._num_parked -= self._waiters[node].state == PARKED
        self._waiters[node].state, self._waiters[node].next_free = FREE, self._free
        self._free = node
        self.size -= 1
        return 0

    cdef void set_open(self, int32_t cause, bint is_open) noexcept nogil:
        cdef int32_t root = self._roots[cause]
        if self._is_open[cause] == is_open:
            return
        if root >= 0:
            self._set_root(cause, -1)
        self._is_open[cause] = is_open
        if root >= 0:
            self._set_root(cause, root)

    cdef void move(self, int32_t row, int32_t cause) noexcept nogil:
        cdef int32_t node = self._node_of(row)
        self._unlink(node)
        self._waiters[node].cause = cause
        self._link(node)

    cdef void set_aside(self, int32_t row) noexcept nogil:
        cdef int32_t node = self._node_of(row)
        self._unlink(node)
        self._waiters[node].state = ASIDE

    cdef void put_back(self, int32_t row) noexcept nogil:
        cdef int32_t node = self._node_of(row)
        self._num_parked -= self._waiters[node].state == PARKED
        self._waiters[node].state = QUEUED
        self._link(node)

    cdef int park_until(self, int32_t row, int64_t instant_ns) except -1 nogil:
        if instant_ns != NEVER_NS:
            push_row(&self._instants, instant_ns, row)
        self.set_aside(row)
        self._waiters[self._node_of(row)].state = PARKED
        self._num_parked += 1
        return 0

    cdef void wake(self, int64_t now_ns) noexcept nogil:
        cdef int32_t row
        while first_ns(&self._instants) <= now_ns:
            row = <int32_t>pop_row(&self._instants).number
            if self._node_of(row) >= 0 and self._waiters[self._node_of(row)].state == PARKED:
                self.put_back(row)

    cdef void wake_all(self) noexcept nogil:
        cdef int32_t node
        for node in range(self._room if self._num_parked > 0 else 0):
            if self._waiters[node].state == PARKED:
                self.put_back(self._waiters[node].row)
        self._instants.size = 0

    cdef void _link(self, int32_t node) noexcept nogil:
        """Put a node that is in no heap into that of its cause."""
        cdef int32_t cause = self._waiters[node].cause, root = link_node(self._nodes, self._roots[cause], node)
        if root != self._roots[cause]:
            self._set_root(cause, root)

    cdef void _unlink(self, int32_t node) noexcept nogil:
        """Take a node out of the heap of its cause."""
        cdef int32_t cause = self._waiters[node].cause, root = unlink_node(self._nodes, self._roots[cause], node)
        if root != self._roots[cause]:
            self._set_root(cause, root)

    cdef void _set_root(self, int32_t cause, int32_t node) noexcept nogil:
        """Set the first row of a cause, -1: none."""
        cdef const HeapNode* first
        if self._roots[cause] >= 0:
            self._open.remove(cause) if self._is_open[cause] else self._closed.remove(cause)
        self._roots[cause] = node
        if node >= 0:                               # there is room for all causes
            first = &self._nodes[node]
            if self._is_open[cause]:
                self._open.push(cause, first.key, first.tie, first.rank)
            else:
                self._closed.push(cause, first.key, first.tie, first.rank)

    cdef int _grow(self) except -1 nogil:
        cdef int32_t before = self._room, after = 16 if self._room == 0 else 2 * self._room, i
        resize(&self._waiters, after * sizeof(Waiter))
        resize(&self._nodes, after * sizeof(HeapNode))
        for i in range(before, after):
            self._waiters[i].state, self._waiters[i].next_free = FREE, i + 1 if i + 1 < after else -1
        self._free, self._room = before, after
        return 0

    # ---- the face for tests and exploration

    def __len__(self):
        return self.size

    def rows(self):
        """Return all rows in order."""
        return [entry[3] for entry in sorted(
            (self._nodes[i].key, self._nodes[i].tie, self._nodes[i].rank, self._waiters[i].row)
            for i in range(self._room) if self._waiters[i].state != FREE)]

    def check(self):
        """Raise RuntimeError if a row goes before the row above it, or cannot be found."""
        cdef int32_t i, num_rows = 0
        cdef const Waiter* waiter
        self._node_of_row.check()
        self._open.check()
        self._closed.check()
        for i in range(self._room):
            waiter = &self._waiters[i]
            num_rows += waiter.state != FREE
            if waiter.state != FREE and self._node_of(waiter.row) != i:
                broken("CauseQueue: a row is not where its place says")
            if waiter.state == QUEUED and self._nodes[i].prev < 0 and self._roots[waiter.cause] != i:
                broken("CauseQueue: a row without another above it is not the first of its cause")
            if waiter.state == QUEUED and not is_family(self._nodes, i):
                broken("CauseQueue: a row goes before the row above it")
        if num_rows != self.size:
            broken("CauseQueue: its size is not the number of its rows")

    def push_row(self, row, cause, key, tie, rank):
        """Add a row that is not in it."""
        self.push(row, cause, key, tie, rank)

    def remove_row(self, row):
        """Remove a row in whatever state."""
        if self.remove(row) < 0:
            raise KeyError(row)

    def first_row(self, of_all):
        """Return the first row of open causes, or of all; -1: none."""
        return self.first(of_all)

    def open_or_close(self, cause, is_open):
        """Open or close a cause."""
        self.set_open(cause, is_open)

    def move_row(self, row, cause):
        """Put a queued row under another cause."""
        self.move(row, cause)

    def pass_over(self, row):
        """Let a queued row be passed over."""
        self.set_aside(row)

    def return_row(self, row):
        """Put back a row that was passed over."""
        self.put_back(row)

    def park_row(self, row, instant_ns):
        """Park a queued row until an instant."""
        self.park_until(row, instant_ns)

    def wake_rows(self, now_ns):
        """Return parked rows to the order at their instant; None: all rows."""
        if now_ns is None:
            self.wake_all()
        else:
            self.wake(now_ns)
