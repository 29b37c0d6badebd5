"""The collectives of an iteration, priced together by the number of its tokens."""
from libc.stdint cimport int64_t

from simulator.collective.base cimport CollectiveGroup, CollectiveKind, Questions


cdef enum:
    MAX_EXCHANGES = 8


cdef struct PricedExchange:     # see exchanges.Exchange
    CollectiveGroup group
    CollectiveKind kind
    double count
    double token_bytes


cdef class IterationCollectives(Questions):
    cdef PricedExchange _exchanges[MAX_EXCHANGES]
    cdef int _num_exchanges
    cdef int64_t _tokens        # of the last iteration; steady decode repeats it
    cdef double _ns             # of these

    # Nanoseconds of all collectives of an iteration of so many tokens, one after another. A pure function.
    cdef inline double ns(self, int64_t tokens) noexcept nogil:
        if tokens != self._tokens:
            self._price(tokens)
        self.ask_again()
        return self._ns

    # Of these, one hand-over to the next pipeline stage; 0 with one stage.
    cdef double handover_ns(self, int64_t tokens) noexcept nogil

    # The same for a rank in lock step that has an equal part of `tokens`, where all together have `gathered`.
    cdef double rank_ns(self, int64_t tokens, int64_t gathered) noexcept nogil

    cdef void _price(self, int64_t tokens) noexcept nogil
    cdef double _exchange_ns(self, int i, int64_t tokens) noexcept nogil
