"""Drafts that a grammar admits."""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.core.draws cimport mix
from simulator.domain.request cimport Demand


@cython.final
cdef class GrammarDrafts:
    cdef const Demand* _demands
    cdef const uint64_t[::1] _numbers   # [row] number that identifies a request wherever it is served
    cdef object _owner                  # of _demands
    cdef uint64_t _key                  # of the random stream
    cdef uint64_t _bound                # drawn numbers of 53 bits below it are of tokens that a grammar admits
    cdef readonly int64_t num_rejected  # drafts rejected by a grammar, and drafts after a rejected one

    # Does the answer of a request keep to a grammar?
    cdef inline bint has_grammar(self, int32_t row) noexcept nogil:
        return self._demands[row].grammar >= 0

    # Return how many of `drafts` drafts after a text of `num_tokens` precede the first one that the request's grammar
    # rejects; the others are counted.
    cdef inline int32_t admit(self, int32_t row, int64_t num_tokens, int32_t drafts) noexcept nogil:
        cdef int32_t admitted
        if not self.has_grammar(row):
            return drafts
        admitted = self._num_admitted(row, num_tokens, drafts)
        self.num_rejected += drafts - admitted
        return admitted

    cdef int32_t _num_admitted(self, int32_t row, int64_t num_tokens, int32_t drafts) noexcept nogil
