"""When each replica must act next, and which is first: one wake time each, kept as a tree of minima."""
cimport cython
from libc.stdint cimport int32_t, int64_t


@cython.final
cdef class WakeHeap:
    cdef int64_t* _node         # 1: root; 2i, 2i + 1: children of i; _num_leaves + r: wake time of replica r. A parent
                                # is the minimum of its children; index 0 is not used
    cdef readonly int32_t size  # replicas
    cdef int32_t _num_leaves    # power of two >= size; the leaves beyond size stay at NEVER_NS

    # Move the wake time of `index` to any other, earlier or later; NEVER_NS if there is none. O(log size) at most.
    cdef inline void set(self, int32_t index, int64_t time_ns) noexcept nogil:
        cdef int64_t* node = self._node
        cdef int64_t i = self._num_leaves + index, earliest = time_ns
        node[i] = time_ns
        while i > 1:
            if node[i ^ 1] < earliest:
                earliest = node[i ^ 1]
            i >>= 1
            if node[i] == earliest:         # nothing above can change
                return
            node[i] = earliest

    cdef inline int64_t get(self, int32_t index) noexcept nogil:
        return self._node[self._num_leaves + index]

    # The earliest wake time; NEVER_NS if no replica has one.
    cdef inline int64_t top_time(self) noexcept nogil:
        return self._node[1]

    # The replica with that time, the lowest index among equals; 0 if no replica has one.
    cdef inline int32_t top_index(self) noexcept nogil:
        cdef int64_t* node = self._node
        cdef int64_t i = 1, earliest = node[1]
        while i < self._num_leaves:
            i = 2 * i + (node[2 * i] != earliest)
        return <int32_t>(i - self._num_leaves)

    # Raise RuntimeError if a parent is not the minimum of its children.
    cpdef int check(self) except -1 nogil
