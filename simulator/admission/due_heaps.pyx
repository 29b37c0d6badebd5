"""Waiting rows by deadline, for the order edf: one heap for each flow of the gateway queue."""
cimport cython
from libc.stdlib cimport free, malloc

from simulator.core.errors cimport broken
from simulator.core.pairing_heap cimport is_family, link_node, new_node, unlink_node


@cython.final
cdef class DueHeaps:
    """Heaps of rows 0 .. num_rows - 1 in num_flows flows, none waiting at first."""

    def __cinit__(self, int32_t num_rows, int32_t num_flows):
        cdef int32_t i
        self._num_flows = num_flows
        self._nodes = <HeapNode*>malloc(max(num_rows, 1) * sizeof(HeapNode))
        self._roots = <int32_t*>malloc(num_flows * sizeof(int32_t))
        if self._nodes == NULL or self._roots == NULL:
            raise MemoryError()
        for i in range(num_flows):
            self._roots[i] = -1

    def __dealloc__(self):
        free(self._nodes)
        free(self._roots)

    cdef void push(self, int32_t row, int32_t flow, int64_t due_ns, int64_t place) noexcept nogil:
        self._nodes[row] = new_node(due_ns, place, 0)
        self._roots[flow] = link_node(self._nodes, self._roots[flow], row)

    cdef void remove(self, int32_t row, int32_t flow) noexcept nogil:
        self._roots[flow] = unlink_node(self._nodes, self._roots[flow], row)

    cdef int check(self, int64_t size) except -1 nogil:
        cdef int32_t i, row
        cdef int64_t found = 0
        for i in range(self._num_flows):
            row = self._roots[i]
            while row >= 0:                     # down the first children, along the rows beside them, up again
                found += 1
                if not is_family(self._nodes, row):
                    return broken("DueHeaps: a row goes before the row above it")
                if self._nodes[row].child >= 0:
                    row = self._nodes[row].child
                    continue
                while row >= 0 and self._nodes[row].next < 0:
                    row = self._above(row)
                row = self._nodes[row].next if row >= 0 else -1
        return broken("DueHeaps: the heaps hold not all rows that wait") if found != size else 0

    cdef int32_t _above(self, int32_t row) noexcept nogil:
        # The node above a node and all beside it; -1: it is a root.
        while self._nodes[row].prev >= 0 and self._nodes[self._nodes[row].prev].child != row:
            row = self._nodes[row].prev
        return self._nodes[row].prev
