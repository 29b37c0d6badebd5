"""The collectives of an iteration, priced together by the number of its tokens."""
cimport cython

from simulator.collective.base cimport DATA, PIPELINE, CollectiveModel

from simulator.collective.groups import GROUPS, KINDS


@cython.final
cdef class IterationCollectives(Questions):
    """Exchanges (see exchanges.py) under a collective model."""

    def __init__(self, CollectiveModel model, exchanges):
        if len(exchanges) > MAX_EXCHANGES:
            raise ValueError(f"{len(exchanges)} exchanges, at most {MAX_EXCHANGES} expected")
        Questions.__init__(self, model)
        self._tokens, self._num_exchanges = -1, len(exchanges)
        for i, each in enumerate(exchanges):
            self._exchanges[<int>i] = PricedExchange(
                GROUPS.index(each.group), KINDS.index(each.kind), each.count, each.token_bytes)

    cdef double _exchange_ns(self, int i, int64_t tokens) noexcept nogil:
        cdef const PricedExchange* each = &self._exchanges[i]
        return each.count * self._model.time_ns(each.group, each.kind, each.token_bytes * <double>tokens)

    cdef double handover_ns(self, int64_t tokens) noexcept nogil:
        cdef int i
        for i in range(self._num_exchanges):
            if self._exchanges[i].group == PIPELINE:
                return self._exchange_ns(i, tokens) / self._exchanges[i].count
        return 0.0

    cdef double rank_ns(self, int64_t tokens, int64_t gathered) noexcept nogil:
        cdef double total = 0.0
        cdef int i
        for i in range(self._num_exchanges):
            total += self._exchange_ns(i, gathered if self._exchanges[i].group == DATA else tokens)
        return total

    cdef void _price(self, int64_t tokens) noexcept nogil:
        cdef int i
        self._ns = 0.0
        self.begin()
        for i in range(self._num_exchanges):
            self._ns += self._exchange_ns(i, tokens)
        self.end()
        self._tokens = -1 if self._model.failed else tokens     # it may know the time once its fault is raised

    def seconds(self, int64_t tokens) -> list:
        """Return the seconds of each exchange in an iteration of so many tokens."""
        return [self._exchange_ns(i, tokens) * 1e-9 for i in range(self._num_exchanges)]
