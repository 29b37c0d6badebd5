"""A weighted sample of integers, kept whole: exact mean, deviation and ranks."""
cimport cython
from libc.stdlib cimport free

from simulator.core.memory cimport resize

import math

import numpy as np

cdef extern from *:
    """
    #include <stdint.h>
    /* 128 bits hold the squares of 2**40 observations below 2**44. */
    typedef struct { unsigned __int128 sum, squares; } sim_sums;
    static inline void sim_clear(sim_sums *sums) { sums->sum = sums->squares = 0; }
    static inline void sim_add(sim_sums *sums, uint64_t value, uint64_t weight) {
        unsigned __int128 product = (unsigned __int128)value * weight;
        sums->sum += product;
        sums->squares += product * value;
    }
    static inline uint64_t sim_word(const sim_sums *sums, int of_squares, int high) {
        return (uint64_t)((of_squares ? sums->squares : sums->sum) >> (high ? 64 : 0));
    }
    """
    ctypedef struct Sums "sim_sums":
        pass
    void clear_sums "sim_clear"(Sums* sums) noexcept nogil
    void add_to_sums "sim_add"(Sums* sums, uint64_t value, uint64_t weight) noexcept nogil
    uint64_t word "sim_word"(const Sums* sums, bint of_squares, bint high) noexcept nogil


cdef enum:
    WEIGHT_MASK = (1 << WEIGHT_BITS) - 1
    MERGED_FROM = 1 << 23       # entries: below, memory is cheaper than sorting; above, most values recur


@cython.final
cdef class WeightedSamples:
    """Weighted observations of integers >= 0.

    Sums are integers: neither the order nor the grouping of observations shows in any result but `pairs`.
    """

    def __dealloc__(self):
        free(self._packed)
        free(self._large)

    cdef int _add_slowly(self, int64_t value, int32_t weight) except -1 nogil:
        while weight > WEIGHT_MASK:
            self._add_slowly(value, WEIGHT_MASK)
            weight -= WEIGHT_MASK
        if value >> (64 - WEIGHT_BITS) == 0:
            if self.size == self._room:
                self._grow()
            return self.add(value, weight)
        if self._num_large == self._room_large:
            resize(&self._large, (2 * self._room_large + 16) * sizeof(LargeSample))
            self._room_large = 2 * self._room_large + 16
        self._large[self._num_large].value = value
        self._large[self._num_large].weight = weight
        self._num_large += 1
        return 0

    cdef int _grow(self) except -1 nogil:
        cdef int64_t room = max(<int64_t>4096, 2 * self._room)
        if self.size >= MERGED_FROM:
            with gil:
                self._sort()
            self._merge()
            if self.size <= self._room // 2:
                return 0
        resize(&self._packed, room * sizeof(uint64_t))
        self._room = room
        return 0

    cdef void _merge(self) noexcept nogil:
        cdef int64_t i, last = 0
        cdef uint64_t weight
        for i in range(1, self.size):
            weight = (self._packed[last] & WEIGHT_MASK) + (self._packed[i] & WEIGHT_MASK)
            if self._packed[i] >> WEIGHT_BITS == self._packed[last] >> WEIGHT_BITS and weight <= WEIGHT_MASK:
                self._packed[last] = (self._packed[last] & ~<uint64_t>WEIGHT_MASK) | weight
            else:
                last += 1
                self._packed[last] = self._packed[i]
        self.size = last + 1

    def absorb(self, WeightedSamples other):
        """Move the samples of another one here; it is empty afterwards."""
        cdef int64_t i
        for i in range(other.size):
            self.add(<int64_t>(other._packed[i] >> WEIGHT_BITS), <int32_t>(other._packed[i] & WEIGHT_MASK))
        for i in range(other._num_large):
            self._add_slowly(other._large[i].value, <int32_t>other._large[i].weight)
        other.size = other._num_large = 0

    def observe(self, int64_t value, int32_t weight=1):
        """Add `weight` (>= 1) observations of `value` (>= 0)."""
        if value < 0 or weight < 1:
            raise ValueError(f"expected a value >= 0 and a weight >= 1, found {value} and {weight}")
        self.add(value, weight)

    def observe_all(self, const int64_t[::1] values, const int32_t[::1] weights):
        """Add many: `weights[i]` (>= 1) observations of `values[i]` (>= 0)."""
        cdef int64_t i
        if len(values) != len(weights) or np.less(values, 0).any() or np.less(weights, 1).any():
            raise ValueError("expected as many weights >= 1 as values >= 0")
        with nogil:
            for i in range(values.shape[0]):
                self.add(values[i], weights[i])

    def total_weight(self):
        """Return the number of observations."""
        cdef int64_t i, total = 0
        with nogil:
            for i in range(self.size):
                total += self._packed[i] & WEIGHT_MASK
            for i in range(self._num_large):
                total += self._large[i].weight
        return total

    def mean_and_deviation(self):
        """Return mean and population standard deviation; None, None without observations.

        Worked out in integers, so that only the division and the root round.
        """
        cdef Sums sums
        cdef int64_t i
        weight = self.total_weight()
        if not weight:
            return None, None
        with nogil:
            clear_sums(&sums)
            for i in range(self.size):
                add_to_sums(&sums, self._packed[i] >> WEIGHT_BITS, self._packed[i] & WEIGHT_MASK)
        total = (int(word(&sums, False, True)) << 64) + word(&sums, False, False)
        squares = (int(word(&sums, True, True)) << 64) + word(&sums, True, False)
        for value, count in self._large_pairs():
            total += value * count
            squares += value * value * count
        return total / weight, math.sqrt((weight * squares - total * total) / (weight * weight))

    def at_ranks(self, ranks):
        """Return the observations of the given ranks.

        ranks : ascending integers, from 0 for the smallest observation to total_weight() - 1.
        """
        cdef int64_t i = 0, below = 0, rank
        if list(ranks) != sorted(ranks) or (len(ranks) and ranks[0] < 0):
            raise ValueError(f"expected ascending ranks from 0, found {list(ranks)}")
        self._sort()
        large = self._large_pairs()
        found = []
        for rank in ranks:
            while i < self.size and below + <int64_t>(self._packed[i] & WEIGHT_MASK) <= rank:
                below += self._packed[i] & WEIGHT_MASK
                i += 1
            if i < self.size:
                found.append(int(self._packed[i] >> WEIGHT_BITS))
                continue
            while large and below + large[0][1] <= rank:
                below += large.pop(0)[1]
            if not large or rank < 0:
                raise IndexError(f"rank {rank} of {below} observations")
            found.append(large[0][0])
        return found

    def pairs(self):
        """Return values and weights as int64 arrays, by value; a value may recur."""
        self._sort()
        packed = self._view()
        large = np.array(self._large_pairs(), np.int64).reshape(-1, 2)
        values = np.concatenate([(packed >> np.uint64(WEIGHT_BITS)).astype(np.int64), large[:, 0]])
        return values, np.concatenate([(packed & np.uint64(WEIGHT_MASK)).astype(np.int64), large[:, 1]])

    def drain(self):
        """Return values and weights as int64 arrays, in any order; no observation is left."""
        cdef int64_t i
        packed, large = self._view().copy(), np.empty((self._num_large, 2), np.int64)
        for i in range(self._num_large):
            large[i] = self._large[i].value, self._large[i].weight
        self.size = self._num_large = 0
        return (np.concatenate([(packed >> np.uint64(WEIGHT_BITS)).astype(np.int64), large[:, 0]]),
                np.concatenate([(packed & np.uint64(WEIGHT_MASK)).astype(np.int64), large[:, 1]]))

    def _view(self):
        return np.asarray(<uint64_t[:self.size]>self._packed) if self.size else np.empty(0, np.uint64)

    def _sort(self):
        self._view().sort()

    def _large_pairs(self):
        cdef int64_t i
        return sorted((int(self._large[i].value), int(self._large[i].weight)) for i in range(self._num_large))
