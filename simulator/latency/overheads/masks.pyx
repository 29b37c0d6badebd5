"""Structured outputs: the host fills masks of logits during the forward pass, and sampling waits for both.

Source: vLLM 0.32.0, vllm/v1/engine/core.py (EngineCore.step), vllm/v1/structured_output/__init__.py (grammar_bitmask).
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.latency.overheads.base cimport EngineOverhead
from simulator.latency.base cimport LatencyModel

import numpy as np

cdef enum:
    MOST_ONE_BY_ONE = 128       # requests with grammars; several threads fill more masks than this, without drafts
    GROUP = 16                  # requests per task of a thread
    MOST_THREADS = 8


@cython.final
cdef class Masks(EngineOverhead):
    """An iteration takes the longer of its forward pass and its masks.

    Parameters
    ----------
    mask_us : drawn times, float64 (n,); consecutive masks take consecutive times, from a batch-dependent place.
    cpus : of the host; half as many threads, at most 8, fill masks of more than 128 requests.
    drafts : per decoding sequence; above 0 the masks are always filled one after the other.
    """

    cdef double[::1] _sums_ns           # [n + 1] of the first times
    cdef int64_t _count
    cdef bint _is_constant
    cdef int32_t _num_threads, _drafts

    def __init__(self, LatencyModel model, mask_us, int32_t cpus, int32_t drafts):
        EngineOverhead.__init__(self, model)
        times_ns = 1e3 * np.asarray(mask_us, np.float64)
        self._sums_ns, self._count = np.concatenate([[0.0], np.cumsum(times_ns)]), len(times_ns)
        self._is_constant = bool((times_ns == times_ns[0]).all())
        self.is_monotone = model.is_monotone and self._is_constant
        self._num_threads, self._drafts = min(max(cpus // 2, 1), MOST_THREADS), drafts

    def masks_us(self, int32_t count, int64_t context_tokens=0) -> float:
        """Return the time of the masks of a batch alone, in microseconds."""
        cdef BatchShape shape
        shape.num_masks, shape.context_tokens, shape.prefill_token_pairs = count, context_tokens, 0
        return 1e-3 * self._masks_ns(&shape)

    cdef double _sum_ns(self, int64_t first, int64_t count) noexcept nogil:
        """Return the time of `count` consecutive masks, from index `first` of the times."""
        cdef double ns = 0.0
        cdef int64_t part
        first %= self._count
        while count > 0:
            part = min(count, self._count - first)
            ns += self._sums_ns[first + part] - self._sums_ns[first]
            count -= part
            first = 0
        return ns

    cdef double _masks_ns(self, const BatchShape* shape) noexcept nogil:
        cdef double busy_ns[MOST_THREADS]
        cdef double last_ns = 0.0
        cdef int64_t place = self._place(shape), begin = 0
        cdef int32_t thread, i
        if shape.num_masks <= MOST_ONE_BY_ONE or self._drafts > 0:
            return self._sum_ns(place, shape.num_masks)
        for thread in range(self._num_threads):
            busy_ns[thread] = 0.0
        while begin < shape.num_masks:              # each task goes to the first idle thread
            thread = 0
            for i in range(1, self._num_threads):
                if busy_ns[i] < busy_ns[thread]:
                    thread = i
            busy_ns[thread] += self._sum_ns(place + begin, min(<int64_t>GROUP, shape.num_masks - begin))
            last_ns = max(last_ns, busy_ns[thread])
            begin += GROUP
        return last_ns

    cdef int64_t _place(self, const BatchShape* shape) noexcept nogil:
        """Return the first index of a batch in the times: a hash, equal for equal batches."""
        cdef uint64_t mixed = <uint64_t>shape.context_tokens * <uint64_t>0x9E3779B97F4A7C15
        if self._is_constant:
            return 0
        mixed = (mixed ^ <uint64_t>shape.prefill_token_pairs) * <uint64_t>0xBF58476D1CE4E5B9
        mixed = (mixed ^ (mixed >> 31) ^ <uint64_t>shape.num_masks) * <uint64_t>0x94D049BB133111EB
        return <int64_t>((mixed ^ (mixed >> 29)) % <uint64_t>self._count)

    cdef double around_ns(self, const BatchShape* shape, double ns) noexcept nogil:
        return max(ns, self._masks_ns(shape)) if shape.num_masks > 0 else ns

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        """Return the times of the stages; the last one samples, so it waits for the masks."""
        cdef double total = 0.0
        cdef int32_t i
        self.model.stages_ns(shape, ns)
        self.note_fault()
        for i in range(self.num_stages):
            total += ns[i]
        if shape.num_masks > 0:
            ns[self.num_stages - 1] += max(self._masks_ns(shape) - total, 0.0)
