"""A histogram of integers with a bounded relative error: any number of observations in the same memory.

An integer below 2**(BITS + 1) has a bucket of its own; each larger one shares a bucket with those that have the same
power of two and the same BITS bits behind the leading one. The middle of a bucket is at most 2**-(BITS + 1) times any
of its integers away from that integer.

Source: Gil Tene, HdrHistogram, "bucket and sub-bucket" indexing; the guarantee is that of Masson, Rim, Lee, "DDSketch:
a fast and fully-mergeable quantile sketch with relative-error guarantees", VLDB 2019, definition 2.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
cimport cython

import math

import numpy as np

cdef extern from *:
    """
    #include <stdint.h>
    typedef struct { unsigned __int128 sum, squares; } sim_sketch_sums;
    static inline void sim_sketch_add(sim_sketch_sums *sums, uint64_t value, uint64_t weight) {
        unsigned __int128 product = (unsigned __int128)value * weight;
        sums->sum += product;
        sums->squares += product * value;
    }
    static inline uint64_t sim_sketch_word(const sim_sketch_sums *sums, int of_squares, int high) {
        return (uint64_t)((of_squares ? sums->squares : sums->sum) >> (high ? 64 : 0));
    }
    static inline int sim_sketch_log2(uint64_t value) { return 63 - __builtin_clzll(value | 1); }
    """
    ctypedef struct Sums "sim_sketch_sums":
        pass
    void add_to_sums "sim_sketch_add"(Sums* sums, uint64_t value, uint64_t weight) noexcept nogil
    uint64_t word "sim_sketch_word"(const Sums* sums, bint of_squares, bint high) noexcept nogil
    int log2_of "sim_sketch_log2"(uint64_t value) noexcept nogil

cdef enum:
    BITS = 9
    NUM_BUCKETS = (64 - BITS) << BITS

RELATIVE_ERROR = 2.0 ** -(BITS + 1)


cdef inline int32_t bucket_of(int64_t value) noexcept nogil:
    cdef int32_t shift = log2_of(<uint64_t>value) - BITS
    return <int32_t>value if shift <= 0 else (shift << BITS) + <int32_t>(value >> shift)


@cython.final
cdef class QuantileSketch:
    """Observations of integers >= 0.

    Number, sums, least and largest are exact; ranks have an error of at most `RELATIVE_ERROR` of their value. Neither
    order nor grouping of observations shows in any result.
    """

    cdef int64_t* _counts               # [NUM_BUCKETS]
    cdef Sums _sums                     # of values and their squares, 128 bits each
    cdef readonly int64_t count         # observations
    cdef int64_t _least, _largest       # of all observations; without any: 0

    def __cinit__(self):
        self._counts = <int64_t*>calloc(NUM_BUCKETS, sizeof(int64_t))
        if self._counts == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._counts)

    cdef void _add(self, int64_t value, int64_t weight) noexcept nogil:
        self._least = value if self.count == 0 else min(self._least, value)
        self._largest = max(self._largest, value)
        self._counts[bucket_of(value)] += weight
        self.count += weight
        add_to_sums(&self._sums, <uint64_t>value, <uint64_t>weight)

    def observe(self, const int64_t[::1] values, const int64_t[::1] weights=None):
        """Add observations, each >= 0.

        weights : how often each is added, >= 1; None: once.
        """
        cdef int64_t i
        if np.less(values, 0).any() or (weights is not None and len(weights) != len(values)):
            raise ValueError("expected values >= 0, with as many weights")
        with nogil:
            for i in range(values.shape[0]):
                self._add(values[i], 1 if weights is None else weights[i])

    def mean_and_deviation(self):
        """Return mean and population standard deviation; None, None without observations.

        Worked out in integers, so that only the division and the root round.
        """
        if not self.count:
            return None, None
        total = (int(word(&self._sums, False, True)) << 64) + word(&self._sums, False, False)
        squares = (int(word(&self._sums, True, True)) << 64) + word(&self._sums, True, False)
        variance = (self.count * squares - total * total) / (self.count * self.count)
        return total / self.count, math.sqrt(variance)

    def at_ranks(self, ranks):
        """Return the observations of the given ranks, each with an error of at most `RELATIVE_ERROR`.

        ranks : ascending integers, from 0 for the smallest observation to count - 1.
        """
        cdef int64_t below = 0, rank
        cdef int32_t bucket = 0
        found = []
        for rank in ranks:
            if not 0 <= rank < self.count:
                raise IndexError(f"rank {rank} of {self.count} observations")
            while below + self._counts[bucket] <= rank:
                below += self._counts[bucket]
                bucket += 1
            found.append(min(max(_middle(bucket), self._least), self._largest))
        return found

    def extremes(self):
        """Return the least and the largest observation."""
        return self._least, self._largest


cdef object _middle(int64_t bucket):
    cdef int64_t shift = (bucket >> BITS) - 1, one = 1
    if shift <= 0:
        return bucket
    return ((bucket - (shift << BITS)) << shift) + ((one << shift) - 1) / 2.0
