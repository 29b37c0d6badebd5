"""Sorting of iteration rows by merging, pair by pair, the stretches that are sorted already.

Replicas take turns, and the rows of a turn are in order: 64 replicas make 64 stretches of a slice, which are merged in
6 passes of 16 bytes a row, where the rows themselves have 72.
"""
from libc.stdlib cimport free
from libc.string cimport memcpy
cimport cython

from simulator.core.memory cimport resize

import numpy as np

from simulator.domain import records


cdef inline bint comes_before(const Key* one, const Key* other) noexcept nogil:
    """Compare without a branch: the outcome is as good as random."""
    return (one.start_ns < other.start_ns) | ((one.start_ns == other.start_ns) & (one.replica < other.replica))


cdef void merge(const Key* left, const Key* left_end, const Key* right, const Key* right_end, Key* out) noexcept nogil:
    cdef bint takes_right
    while left < left_end and right < right_end:
        takes_right = comes_before(right, left)
        out[0] = (right if takes_right else left)[0]
        right += takes_right
        left += not takes_right
        out += 1
    memcpy(out, left, (left_end - left) * sizeof(Key))
    memcpy(out + (left_end - left), right, (right_end - right) * sizeof(Key))


@cython.final
cdef class RowOrder:
    """Sorts rows of `records.ITERATION`; its memory is used again."""

    def __dealloc__(self):
        free(self._keys)
        free(self._merged)
        free(self._begins)

    def in_order(self, const IterationRow[::1] rows):
        """Return the rows in order of start and replica, as an array of its own."""
        made = np.empty(len(rows), records.ITERATION)
        cdef IterationRow[::1] view = made
        if len(rows):
            self.sort(&rows[0], len(rows), &view[0])
        return made

    cdef int sort(self, const IterationRow* rows, int64_t count, IterationRow* sorted_rows) except -1 nogil:
        cdef int64_t i, num_stretches
        self._take(rows, count)
        num_stretches = self._find_stretches(count)
        while num_stretches > 1:
            num_stretches = self._merge_pairs(num_stretches)
        for i in range(count):
            memcpy(&sorted_rows[i], &rows[self._keys[i].row], sizeof(IterationRow))
        return 0

    cdef int _take(self, const IterationRow* rows, int64_t count) except -1 nogil:
        cdef int64_t i
        if self._room < count:
            resize(&self._keys, count * sizeof(Key))
            resize(&self._merged, count * sizeof(Key))
            resize(&self._begins, (count + 1) * sizeof(int64_t))
            self._room = count
        for i in range(count):
            self._keys[i].start_ns, self._keys[i].replica = rows[i].start_ns, rows[i].replica
            self._keys[i].row = <int32_t>i
        return 0

    cdef int64_t _find_stretches(self, int64_t count) noexcept nogil:
        """Find sorted stretches; return their number, at least one, which may be empty."""
        cdef int64_t i, found = 1
        self._begins[0] = 0
        for i in range(1, count):
            if comes_before(&self._keys[i], &self._keys[i - 1]):
                self._begins[found] = i
                found += 1
        self._begins[found] = count
        return found

    cdef int64_t _merge_pairs(self, int64_t num_stretches) noexcept nogil:
        """Merge each second stretch into the one before it; return the number left."""
        cdef int64_t* begins = self._begins
        cdef Key* keys = self._keys
        cdef int64_t i, middle, end, left = 0
        for i in range(0, num_stretches, 2):
            middle, end = begins[i + 1], begins[min(i + 2, num_stretches)]
            merge(keys + begins[i], keys + middle, keys + middle, keys + end, self._merged + begins[i])
            begins[left] = begins[i]
            left += 1
        begins[left] = end
        self._keys, self._merged = self._merged, keys
        return left
