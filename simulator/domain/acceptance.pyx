"""Accepted drafts of a verify step: from a cycle, or drawn from a distribution.

A draw depends on seed, request and step alone, so that neither the order of replicas nor a change of scheduler disturbs
it.
"""
from libc.math cimport ceil
from libc.stdlib cimport calloc, free, malloc
cimport cython

import numpy as np


@cython.final
cdef class Acceptance:
    """Accepted drafts per verify step, by request.

    cycle : accepted drafts of each verify step, cycled per request, not empty; not read if `weights` are given.
    weights : weight of 0, 1, 2, ... accepted drafts, any sum > 0; or float64 (p, m), for p profiles; None: the cycle
        decides.
    num_requests : rows of the workload.
    key : 64-bit key of the random stream.
    numbers : uint64 (num_requests,), identify requests wherever they are served; None: their rows.
    profiles : int32 (num_requests,), the profile of each request; None: there is one for all.
    """

    def __init__(self, cycle, weights, int32_t num_requests, uint64_t key, const uint64_t[::1] numbers=None,
                 const int32_t[::1] profiles=None):
        cdef int32_t row
        self._key = key
        if numbers is not None:
            self._numbers = <uint64_t*>malloc(max(num_requests, 1) * sizeof(uint64_t))
            if self._numbers == NULL:
                raise MemoryError()
            for row in range(num_requests):
                self._numbers[row] = numbers[row]
        self.steps = <int32_t*>calloc(max(num_requests, 1), sizeof(int32_t))
        if self.steps == NULL:
            raise MemoryError()
        if weights is None:
            self._take_cycle(cycle)
        elif profiles is None:
            self._take_weights(weights)
        else:
            self._take_profiles(weights, profiles)

    def __dealloc__(self):
        free(self._cycle)
        free(self._sums)
        free(self._bounds)
        free(self._profiles)
        free(self._numbers)
        free(self.steps)

    def _take_cycle(self, cycle):
        cdef int32_t i
        self.period = len(cycle)
        self._cycle = <int32_t*>malloc(self.period * sizeof(int32_t))
        self._sums = <int64_t*>calloc(self.period + 1, sizeof(int64_t))
        if self._cycle == NULL or self._sums == NULL:
            raise MemoryError()
        for i in range(self.period):
            self._cycle[i] = cycle[i]
            self._sums[i + 1] = self._sums[i] + self._cycle[i]

    def _take_weights(self, weights):
        """Have bounds that compare as numbers in [0, 1) of 53 bits would with the sums of the weights."""
        cdef double total = sum(weights), below = 0.0
        cdef int32_t i
        if total <= 0:
            raise ValueError("the weights of accepted drafts sum to 0")
        self._num_bounds = len(weights) - 1
        self._bounds = <uint64_t*>malloc(max(self._num_bounds, 1) * sizeof(uint64_t))
        if self._bounds == NULL:
            raise MemoryError()
        for i in range(self._num_bounds):
            below += weights[i]
            self._bounds[i] = <uint64_t>ceil(below / total * 9007199254740992.0)        # 2**53: exact but for the ceil

    def _take_profiles(self, weights, const int32_t[::1] profiles):
        """Set the bounds of each profile, as `_take_weights` does for one."""
        cdef const double[:, ::1] given = np.ascontiguousarray(weights, np.float64)
        cdef Py_ssize_t num_profiles = given.shape[0], i, j
        cdef double total, below
        self._num_bounds = <int32_t>given.shape[1] - 1
        self._bounds = <uint64_t*>malloc(max(num_profiles * self._num_bounds, 1) * sizeof(uint64_t))
        self._profiles = <int32_t*>malloc(max(len(profiles), 1) * sizeof(int32_t))
        if self._bounds == NULL or self._profiles == NULL:
            raise MemoryError()
        for i in range(num_profiles):
            total = below = 0.0
            for j in range(self._num_bounds + 1):
                total += given[i, j]
            if total <= 0:
                raise ValueError("the weights of accepted drafts sum to 0")
            for j in range(self._num_bounds):
                below += given[i, j]
                self._bounds[i * self._num_bounds + j] = <uint64_t>ceil(min(below / total, 1.0) * 9007199254740992.0)
        for i in range(len(profiles)):
            if not 0 <= profiles[i] < num_profiles:
                raise ValueError(f"request {i} has profile {profiles[i]} of {num_profiles}")
            self._profiles[i] = profiles[i]

    cdef int32_t next(self, int32_t row) noexcept nogil:
        cdef int32_t step = self.steps[row]
        self.steps[row] = step + 1
        return self.accepted(self.bounds(row), self.stream(row) if self.period == 0 else 0, step)

    cdef void count(self, int32_t row, int32_t first, int32_t end, int64_t* steps) noexcept nogil:
        cdef uint64_t stream = self.stream(row) if self.period == 0 else 0
        cdef const uint64_t* bounds = self.bounds(row)
        cdef int32_t cycles = (end - first) // self.period if self.period > 0 else 0, i
        if cycles > 0:
            for i in range(self.period):
                steps[self._cycle[i]] += cycles
        for i in range(first + cycles * self.period, end):
            steps[self.accepted(bounds, stream, i)] += 1

    # The face for tests and exploration.

    def accepted_drafts(self, int32_t row, int32_t step):
        """Return the drafts that are accepted in a verify step, counted from 0, of a request."""
        return self.accepted(self.bounds(row), self.stream(row), step)
