"""A sample of non-negative integers with weights, kept whole: 8 bytes an entry, exact sums, exact ranks."""
cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t


cdef enum:
    WEIGHT_BITS = 20                            # of a packed entry; the rest is the value


cdef struct LargeSample:                        # what does not fit into a packed entry
    int64_t value
    int64_t weight


@cython.final
cdef class WeightedSamples:
    cdef uint64_t* _packed                      # value << WEIGHT_BITS | weight; sorted: by value
    cdef readonly int64_t size                  # packed entries
    cdef int64_t _room
    cdef LargeSample* _large                    # values of 2**44 and more
    cdef int64_t _num_large, _room_large

    # Add `weight` (>= 1) observations of `value` (>= 0).
    cdef inline int add(self, int64_t value, int32_t weight) except -1 nogil:
        if self.size == self._room or value >> (64 - WEIGHT_BITS) != 0 or weight >> WEIGHT_BITS != 0:
            return self._add_slowly(value, weight)
        self._packed[self.size] = (<uint64_t>value << WEIGHT_BITS) | <uint64_t>weight
        self.size += 1
        return 0

    cdef int _add_slowly(self, int64_t value, int32_t weight) except -1 nogil
    cdef int _grow(self) except -1 nogil
