"""A Python face of RowHeap."""
# cython: language_level=3
from libc.stdlib cimport free
from libc.string cimport memset

from simulator.core.heap cimport Keyed, RowHeap, first_ns, pop_row, push_row


cdef class Face:
    """Rows in order of a time, then of their number."""

    cdef RowHeap heap

    def __cinit__(self):
        memset(&self.heap, 0, sizeof(RowHeap))

    def __dealloc__(self):
        free(self.heap.entries)

    def __len__(self):
        return self.heap.size

    def push(self, time_ns, row):
        push_row(&self.heap, time_ns, row)

    def pop(self):
        cdef Keyed first = pop_row(&self.heap)
        return first.key, first.number

    def first_ns(self):
        return first_ns(&self.heap)
