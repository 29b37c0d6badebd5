"""When each replica must act next, and which is first.

A tree of minima rather than an indexed heap: it needs no map from replica to position, a change walks straight up and
stops where the minimum stays, and equal times fall to the lowest index by themselves.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

from simulator.core.clock cimport NEVER_NS
from simulator.core.errors cimport broken


cdef class WakeHeap:
    """One wake time for each of `size` replicas, at first NEVER_NS."""

    def __cinit__(self, int32_t size):
        if not 1 <= size <= 1 << 24:
            raise ValueError(f"size must be 1 .. 2**24, found {size}")
        self.size = size
        self._num_leaves = 1
        while self._num_leaves < size:
            self._num_leaves *= 2
        self._node = <int64_t*>malloc(2 * self._num_leaves * sizeof(int64_t))
        if self._node == NULL:
            raise MemoryError()
        cdef int64_t i
        for i in range(2 * self._num_leaves):
            self._node[i] = NEVER_NS

    def __dealloc__(self):
        free(self._node)

    cpdef int check(self) except -1 nogil:
        cdef int64_t i
        for i in range(1, self._num_leaves):
            if self._node[i] != min(self._node[2 * i], self._node[2 * i + 1]):
                return broken("WakeHeap: a node is not the minimum of its children")
        for i in range(self._num_leaves + self.size, 2 * self._num_leaves):
            if self._node[i] != NEVER_NS:
                return broken("WakeHeap: a leaf without a replica has a wake time")
        return 0

    # The face for tests and exploration.

    def set_time(self, index, time_ns):
        """Move the wake time of a replica."""
        if not 0 <= index < self.size:
            raise IndexError(f"replica {index} of {self.size}")
        self.set(index, time_ns)

    def top(self):
        """Return (index, time_ns) of the first replica to wake, the lowest index among equals."""
        return self.top_index(), self.top_time()
