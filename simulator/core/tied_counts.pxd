"""The least of many small counts, and the indices that have it: indices sorted by their counts.

For counts that change by one at a time, as requests in flight do: such a change swaps two indices, for any number of
indices. The order of indices with equal counts depends on earlier changes.
"""
cimport cython
from libc.stdint cimport int32_t


cdef enum:
    OUT = -1                    # the count of an excluded index


@cython.final
cdef class TiedCounts:
    cdef readonly int32_t size  # indices
    cdef int32_t* _order        # [size] indices, excluded ones first, then by count
    cdef int32_t* _place        # [index] where in the order it is
    cdef int32_t* _level        # [index] its count + 1; 0: out
    cdef int32_t* _begin        # [level] first place with that level or a higher one
    cdef int32_t _num_levels    # levels that fit before it must grow

    # Give an index another count, or take it out. O(difference).
    cdef int set(self, int32_t index, int32_t count) except -1 nogil

    # One more and one less; nothing happens to an index that is out.
    cdef inline int increase(self, int32_t index) except -1 nogil:
        cdef int32_t level = self._level[index]
        if level == 0:
            return 0
        return self.set(index, level) if level + 2 >= self._num_levels else self._climb(index, level)

    cdef inline int decrease(self, int32_t index) noexcept nogil:
        cdef int32_t level = self._level[index]
        return self._descend(index, level) if level > 1 else 0

    cdef inline int32_t get(self, int32_t index) noexcept nogil:
        return self._level[index] - 1

    # Indices with the least count; 0: all are out.
    cdef inline int32_t ties(self) noexcept nogil:
        cdef int32_t first = self._begin[1]
        return self._begin[self._level[self._order[first]] + 1] - first if first < self.size else 0

    # The k-th index with the least count, k in 0 .. ties - 1, in no special order.
    cdef inline int32_t tied(self, int32_t k) noexcept nogil:
        return self._order[self._begin[1] + k]

    cdef int _grow(self, int32_t num_levels) except -1 nogil

    # Up from its level, where it was the last, to the next, as the first; and the other way round.
    cdef inline int _climb(self, int32_t index, int32_t level) noexcept nogil:
        self._begin[level + 1] -= 1
        self._swap(index, self._begin[level + 1])
        self._level[index] = level + 1
        return 0

    cdef inline int _descend(self, int32_t index, int32_t level) noexcept nogil:
        self._swap(index, self._begin[level])
        self._begin[level] += 1
        self._level[index] = level - 1
        return 0

    cdef inline void _swap(self, int32_t index, int32_t place) noexcept nogil:
        cdef int32_t other = self._order[place]
        self._order[self._place[index]] = other
        self._place[other] = self._place[index]
        self._order[place] = index
        self._place[index] = place

    # Raise RuntimeError unless the order is one.
    cpdef int check(self) except -1 nogil
