"""The next time at which each replica must act, and the first.

A tournament rather than an indexed heap: it needs no map from replica to position, a change walks straight up, the
first is known without a search, the second has lost to it on its way up, and equal times fall to the lowest index.
"""
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
        self._time = <int64_t*>malloc(self._num_leaves * sizeof(int64_t))
        self._winner = <int32_t*>malloc(2 * self._num_leaves * sizeof(int32_t))
        if self._time == NULL or self._winner == NULL:
            raise MemoryError()
        cdef int32_t i
        for i in range(self._num_leaves):
            self._time[i] = NEVER_NS
            self._winner[self._num_leaves + i] = i
        for i in range(self._num_leaves - 1, 0, -1):
            self._winner[i] = self._winner[2 * i]

    def __dealloc__(self):
        free(self._time)
        free(self._winner)

    cpdef int check(self) except -1 nogil:
        cdef int32_t i, left, right
        for i in range(1, self._num_leaves):
            left, right = self._winner[2 * i], self._winner[2 * i + 1]
            if self._winner[i] != (left if self._time[left] <= self._time[right] else right):
                return broken("WakeHeap: a node is not the earlier of its children")
        for i in range(self.size, self._num_leaves):
            if self._time[i] != NEVER_NS:
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

    def second(self):
        """Return (index, time_ns) of one that would be first without that one."""
        return self.second_index(), self.get(self.second_index())
