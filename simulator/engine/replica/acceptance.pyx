"""Accepted drafts of a verify step: from a cycle, or drawn from a distribution.

A draw depends on seed, request and step alone, so that neither the order of replicas nor a change of scheduler disturbs
it.
"""
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
cimport cython

from simulator.core.draws cimport mix


@cython.final
cdef class Acceptance:
    """Accepted drafts per verify step, by request.

    cycle : accepted drafts of each verify step, cycled per request, not empty; not read if `weights` are given.
    weights : weight of 0, 1, 2, ... accepted drafts, any sum > 0; None: the cycle decides.
    num_requests : rows of the workload.
    key : 64-bit key of the random stream.
    """

    def __init__(self, cycle, weights, int32_t num_requests, uint64_t key):
        cdef int32_t i
        cdef double total, below = 0.0
        self._key = key
        self._length = len(cycle if weights is None else weights)
        self._steps = <int32_t*>calloc(max(num_requests, 1), sizeof(int32_t))
        if weights is None:
            self._cycle = <int32_t*>malloc(self._length * sizeof(int32_t))
        else:
            self._cumulative = <double*>malloc(self._length * sizeof(double))
        if self._steps == NULL or (self._cycle == NULL and self._cumulative == NULL):
            raise MemoryError()
        if weights is None:
            for i in range(self._length):
                self._cycle[i] = cycle[i]
            return
        total = sum(weights)
        if total <= 0:
            raise ValueError("the weights of accepted drafts sum to 0")
        for i in range(self._length):
            below += weights[i]
            self._cumulative[i] = below / total

    def __dealloc__(self):
        free(self._cycle)
        free(self._cumulative)
        free(self._steps)

    cdef int32_t next(self, int32_t row) noexcept nogil:
        cdef int32_t step = self._steps[row], accepted = 0
        cdef uint64_t bits
        cdef double uniform                                     # in [0, 1), from the upper 53 bits
        self._steps[row] = step + 1
        if self._cycle != NULL:
            return self._cycle[step % self._length]
        bits = mix(mix(self._key + <uint64_t>row * <uint64_t>0x9E3779B97F4A7C15) + <uint64_t>step)
        uniform = (bits >> 11) * 1.1102230246251565e-16         # 2**-53
        while accepted < self._length - 1 and uniform >= self._cumulative[accepted]:
            accepted += 1
        return accepted
