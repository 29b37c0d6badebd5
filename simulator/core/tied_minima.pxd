"""The least of many keys, and the number of ties: a tree of minima with counts."""
cimport cython
from libc.stdint cimport int32_t


cdef struct Least:              # of the leaves below a node
    double key
    int32_t count               # leaves that have it
    int32_t spare


@cython.final
cdef class TiedMinima:
    cdef Least* _node           # 1: root; 2i, 2i + 1: children of i; _num_leaves + k: key k. Index 0 is not used
    cdef readonly int32_t size  # keys
    cdef int32_t _num_leaves    # power of two >= size; the leaves beyond size stay at infinity

    # Give `index` another key, not NaN; infinity takes it out. O(log size) at most.
    cdef inline void set(self, int32_t index, double key) noexcept nogil:
        cdef Least* node = self._node
        cdef Least least
        cdef int32_t i = self._num_leaves + index
        if node[i].key == key:
            return
        node[i].key = key
        while i > 1:
            least = node[i]
            if node[i ^ 1].key < least.key:
                least = node[i ^ 1]
            elif node[i ^ 1].key == least.key:
                least.count += node[i ^ 1].count
            i >>= 1
            if node[i].key == least.key and node[i].count == least.count:     # nothing above can change
                return
            node[i] = least

    cdef inline double get(self, int32_t index) noexcept nogil:
        return self._node[self._num_leaves + index].key

    # The least key, infinity if all are; how many have it.
    cdef inline double least(self) noexcept nogil:
        return self._node[1].key

    cdef inline int32_t ties(self) noexcept nogil:
        return self._node[1].count

    # The k-th index with the least key, k in 0 .. ties - 1, in order of index.
    cdef inline int32_t tied(self, int32_t k) noexcept nogil:
        cdef Least* node = self._node
        cdef double least = node[1].key
        cdef int32_t i = 1
        while i < self._num_leaves:
            i *= 2
            if node[i].key != least:
                i += 1
            elif k >= node[i].count:
                k -= node[i].count
                i += 1
        return i - self._num_leaves

    # The first index with the least key from `index` on; after the last it wraps around to the first.
    cdef inline int32_t tied_from(self, int32_t index) noexcept nogil:
        cdef Least* node = self._node
        cdef double least = node[1].key
        cdef int32_t i = self._num_leaves + index
        if node[i].key == least:
            return index
        while i > 1 and (i & 1 or node[i + 1].key != least):
            i >>= 1
        i = 1 if i <= 1 else i + 1
        while i < self._num_leaves:
            i *= 2
            i += node[i].key != least
        return i - self._num_leaves

    # Raise RuntimeError if a node does not match its children.
    cpdef int check(self) except -1 nogil
