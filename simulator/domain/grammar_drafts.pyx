"""Drafts that a grammar admits: each with equal probability, drawn by request and position in the text.

A position has one draw, however often it is drafted, and whichever other requests are served.
"""
from libc.math cimport ceil
cimport cython


@cython.final
cdef class GrammarDrafts:
    """Of one scheduler.

    valid_rate : probability that a grammar admits the token drafted for a place, all before it being admitted.
    demands : structured array (n,), `records.DEMAND`. numbers : uint64 (n,), identify requests.
    key : 64-bit key of the random stream.
    """

    def __init__(self, double valid_rate, const Demand[::1] demands, const uint64_t[::1] numbers, uint64_t key):
        self._owner, self._numbers, self._key = demands, numbers, key
        self._demands = &demands[0] if len(demands) else NULL
        self._bound = <uint64_t>ceil(valid_rate * 9007199254740992.0)       # 2**53

    cdef int32_t _num_admitted(self, int32_t row, int64_t num_tokens, int32_t drafts) noexcept nogil:
        cdef uint64_t stream = mix(self._key + self._numbers[row] * <uint64_t>0x9E3779B97F4A7C15)
        cdef int32_t i
        for i in range(drafts):
            if (mix(stream + <uint64_t>(num_tokens + i)) >> 11) >= self._bound:
                return i
        return drafts

    # The face for tests and exploration.

    def admitted_drafts(self, int32_t row, int64_t num_tokens, int32_t drafts):
        """Return how many drafts after a text are admitted, without counting the others."""
        return self._num_admitted(row, num_tokens, drafts) if self.has_grammar(row) else drafts
