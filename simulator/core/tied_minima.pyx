"""The least of many keys, and the number of ties.

A change walks straight up and stops where nothing changes; one walk down finds any of the tied. So a router that takes
the least loaded replica, any among equals, pays only for the replicas that changed.
"""
from libc.math cimport INFINITY
from libc.stdlib cimport free, malloc

from simulator.core.errors cimport broken


cdef class TiedMinima:
    """One key (float) for each of `size` indices, at first infinity."""

    def __cinit__(self, int32_t size):
        cdef int32_t i
        if not 1 <= size <= 1 << 24:
            raise ValueError(f"size must be 1 .. 2**24, found {size}")
        self.size = size
        self._num_leaves = 1
        while self._num_leaves < size:
            self._num_leaves *= 2
        self._node = <Least*>malloc(2 * self._num_leaves * sizeof(Least))
        if self._node == NULL:
            raise MemoryError()
        for i in range(2 * self._num_leaves - 1, 0, -1):
            self._node[i].key = INFINITY
            self._node[i].count = 1 if i >= self._num_leaves else self._node[2 * i].count + self._node[2 * i + 1].count

    def __dealloc__(self):
        free(self._node)

    cpdef int check(self) except -1 nogil:
        cdef int32_t i, count
        cdef double left, right
        for i in range(1, self._num_leaves):
            left, right = self._node[2 * i].key, self._node[2 * i + 1].key
            count = self._node[2 * i].count * (left <= right) + self._node[2 * i + 1].count * (right <= left)
            if self._node[i].key != min(left, right) or self._node[i].count != count:
                return broken("TiedMinima: a node is not the minimum of its children, or miscounts")
        return 0
