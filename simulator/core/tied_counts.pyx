"""The least of many small counts, and the indices that have it: indices sorted by their counts."""
from libc.stdlib cimport free, malloc

from simulator.core.errors cimport broken
from simulator.core.memory cimport resize

cdef enum:
    FIRST_LEVELS = 64
    MOST = 1 << 28


cdef class TiedCounts:
    """One count for each of `size` indices, at first all are out."""

    def __cinit__(self, int32_t size):
        cdef int32_t i
        if not 1 <= size <= 1 << 24:
            raise ValueError(f"size must be 1 .. 2**24, found {size}")
        self.size = size
        self._order = <int32_t*>malloc(size * sizeof(int32_t))
        self._place = <int32_t*>malloc(size * sizeof(int32_t))
        self._level = <int32_t*>malloc(size * sizeof(int32_t))
        if self._order == NULL or self._place == NULL or self._level == NULL:
            raise MemoryError()
        for i in range(size):
            self._order[i] = self._place[i] = i
            self._level[i] = 0
        self._grow(FIRST_LEVELS)
        self._begin[0] = 0

    def __dealloc__(self):
        free(self._order)
        free(self._place)
        free(self._level)
        free(self._begin)

    cdef int _grow(self, int32_t num_levels) except -1 nogil:
        cdef int32_t i
        resize(&self._begin, num_levels * sizeof(int32_t))
        for i in range(self._num_levels, num_levels):
            self._begin[i] = self.size
        self._num_levels = num_levels
        return 0

    cdef int set(self, int32_t index, int32_t count) except -1 nogil:
        if count + 3 > self._num_levels:
            self._grow(2 * count + 3)
        while self._level[index] < count + 1:
            self._climb(index, self._level[index])
        while self._level[index] > count + 1:
            self._descend(index, self._level[index])
        return 0

    cpdef int check(self) except -1 nogil:
        cdef int32_t i, level = 0
        for i in range(self.size):
            if self._place[self._order[i]] != i:
                return broken("TiedCounts: an index is not where it is said to be")
            while level < self._num_levels and self._begin[level] <= i:
                level += 1
            if self._level[self._order[i]] != level - 1:
                return broken("TiedCounts: an index stands among others of another count")
        return 0
