"""The next time at which each replica must act, and the first: one wake time each, in a knock-out tournament."""
cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t


@cython.final
cdef class WakeHeap:
    cdef int64_t* _time         # [_num_leaves] wake time of each replica; those beyond size stay at NEVER_NS
    cdef int32_t* _winner       # 1: of all; 2i, 2i + 1: children of i; _num_leaves + r: replica r. A parent is that
                                # child with the earlier time, of equal ones the left; index 0 is not used
    cdef readonly int32_t size  # replicas
    cdef int32_t _num_leaves    # power of two >= size

    # Move the wake time of `index` to any other, earlier or later; NEVER_NS if there is none. O(log size), without a
    # branch but the loop's: to guess where changes end costs more than it saves.
    cdef inline void set(self, int32_t index, int64_t time_ns) noexcept nogil:
        cdef int32_t* winner = self._winner
        cdef const int64_t* time = self._time
        cdef int64_t earliest = time_ns, other_ns
        cdef int32_t i = self._num_leaves + index, best = index, other
        self._time[index] = time_ns
        while i > 1:
            other = winner[i ^ 1]
            other_ns = time[other]
            best ^= (best ^ other) & -<int32_t>(other_ns - (i & 1) < earliest)     # the left one at equal times
            earliest = min(earliest, other_ns)
            i >>= 1
            winner[i] = best

    cdef inline int64_t get(self, int32_t index) noexcept nogil:
        return self._time[index]

    # The earliest wake time; NEVER_NS if no replica has one.
    cdef inline int64_t top_time(self) noexcept nogil:
        return self._time[self._winner[1]]

    # The replica with that time, the lowest index among equals; 0 if no replica has one.
    cdef inline int32_t top_index(self) noexcept nogil:
        return self._winner[1]

    # The runner-up; the first itself if there is no other. O(log size).
    cdef inline int32_t second_index(self) noexcept nogil:
        cdef int64_t earliest = INT64_MAX, other_ns
        cdef int32_t best = self._winner[1], i = self._num_leaves + best, other
        while i > 1:                            # it has lost to the first on its way up
            other = self._winner[i ^ 1]
            other_ns = self._time[other]
            best ^= (best ^ other) & -<int32_t>(other_ns < earliest)
            earliest = min(earliest, other_ns)
            i >>= 1
        return best

    # Raise RuntimeError unless each parent is the right one of its children.
    cpdef int check(self) except -1 nogil
