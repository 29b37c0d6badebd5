"""A weighted sample of non-negative integers, kept whole.

8 bytes an entry, exact sums, exact ranks. An entry packs value and weight into one word, so that sorting the words
sorts the values; the rare value that is too large for that has a place of its own.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t


cdef enum:
    WEIGHT_BITS = 20                            # of a packed entry; the other 44 are the value: 4.9 hours in ns


cdef struct LargeSample:                        # a value that does not fit into a packed entry
    int64_t value
    int64_t weight                              # >= 1


@cython.final
cdef class WeightedSamples:
    cdef uint64_t* _packed                      # [size] value << WEIGHT_BITS | weight; sorted when ranks are computed
    cdef readonly int64_t size                  # packed entries
    cdef int64_t _room                          # packed entries that fit before it must grow
    cdef LargeSample* _large                    # [_num_large] values of 2**44 and more
    cdef int64_t _num_large
    cdef int64_t _room_large                    # large samples that fit before it must grow

    # Add `weight` (>= 1) observations of `value` (>= 0). -1 without memory.
    cdef inline int add(self, int64_t value, int32_t weight) except -1 nogil:
        if self.size == self._room or value >> (64 - WEIGHT_BITS) != 0 or weight >> WEIGHT_BITS != 0:
            return self._add_slowly(value, weight)
        self._packed[self.size] = (<uint64_t>value << WEIGHT_BITS) | <uint64_t>weight
        self.size += 1
        return 0

    cdef int _add_slowly(self, int64_t value, int32_t weight) except -1 nogil
    cdef int _grow(self) except -1 nogil

    # Make one entry of equal values, as far as its weight goes; the entries are sorted.
    cdef void _merge(self) noexcept nogil
