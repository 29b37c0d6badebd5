"""The best candidate by one metric that no request changes, kept as statuses and accounts change.

A decision of the dispatcher judges all candidates anew. Where the selector goes by one metric of the replica alone and
takes the best, most candidates keep their rank: a candidate is judged again if it was sent a request, lost one, opened
or closed, and all are when statuses arrive. The result is the dispatcher's.
"""
from libc.math cimport INFINITY
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.errors cimport broken
from simulator.routing.llumnix.candidates cimport Candidate, is_idle
from simulator.routing.llumnix.filters cimport (
    DOMAIN_INSTANCE, DOMAIN_INSTANCE_UNIT, FAILOVER, FAILOVER_MIGRATION_SOURCE, RESERVED, STALENESS, passes)
from simulator.routing.llumnix.metrics cimport (
    CACHE_AWARE_ALL_PREFILLS_TOKENS_NUM, KV_CACHE_HIT_LEN, PREDICTED_TPOT, PREDICTED_TTFT, compute_metric, is_less)
from simulator.routing.llumnix.selectors cimport BY_METRICS
from simulator.routing.parts.pick cimport pick_least


cdef bint is_of_replica_alone(int32_t metric) noexcept nogil:
    return metric not in (KV_CACHE_HIT_LEN, CACHE_AWARE_ALL_PREFILLS_TOKENS_NUM, PREDICTED_TTFT, PREDICTED_TPOT)


@cython.final
cdef class Ranking:
    """Ranking of a dispatcher's candidates of one infer type.

    data_parallel_size : of all candidates.
    """

    def __cinit__(self, Dispatcher dispatcher, int infer_type, data_parallel_size):
        cdef int32_t k
        self._dispatcher, self._candidates, self._infer_type = dispatcher, dispatcher.candidates, infer_type
        self._pipeline = &dispatcher.pipelines[infer_type]
        self._members, self._num_members = dispatcher.members[infer_type], dispatcher.num_members[infer_type]
        self._keys = TiedMinima(dispatcher.candidates.count)
        self._fallback_keys = TiedMinima(dispatcher.candidates.count)
        self._is_member = <int8_t*>calloc(dispatcher.candidates.count, sizeof(int8_t))
        if self._is_member == NULL:
            raise MemoryError()
        for k in range(self._num_members):
            self._is_member[self._members[k]] = True
        self._staleness_ns = INT64_MAX
        self._read_filters(data_parallel_size > 1)

    def __dealloc__(self):
        free(self._is_member)

    cdef void _read_filters(self, bint has_units) noexcept nogil:
        """Set `can_tell`: whether the pipeline judges each candidate by itself."""
        cdef int32_t f
        self.can_tell = (
            self._pipeline.is_defined and self._dispatcher.predictor is None
            and self._pipeline.selector.kind == BY_METRICS and self._pipeline.selector.num_metrics == 1
            and self._pipeline.selector.top_k == 1)
        for f in range(self._pipeline.num_metrics):
            self.can_tell &= is_of_replica_alone(self._pipeline.metrics[f])
        for f in range(self._pipeline.filters.count):
            self._read_filter(f, has_units)

    cdef void _read_filter(self, int32_t f, bint has_units) noexcept nogil:
        cdef int8_t kind = self._pipeline.filters.items[f].kind, domain = self._pipeline.filters.items[f].domain
        if kind == STALENESS:
            self._staleness_ns = min(self._staleness_ns,
                                     1000000000 * self._pipeline.filters.items[f].staleness_s)
        elif kind == FAILOVER:
            self._drops_marked = True
            self.can_tell &= not self._pipeline.filters.items[f].is_inverted and (
                domain == DOMAIN_INSTANCE or (domain == DOMAIN_INSTANCE_UNIT and not has_units))
        elif kind == RESERVED or kind == FAILOVER_MIGRATION_SOURCE:
            self.can_tell = False

    cdef void judge(self, int32_t i) noexcept nogil:
        cdef Candidate* c = &self._candidates.items[i]
        cdef int32_t metric = self._pipeline.selector.metrics[0], k
        cdef double key
        if not self._is_member[i]:
            return
        if is_idle(c):
            c.time_ns = self._candidates.now_ns         # as in StatusFeed.refresh
        for k in range(self._pipeline.num_metrics):
            compute_metric(self._candidates, self._pipeline.metrics[k], &i, 1, 0)
        key = self._candidates.metric(metric, i)
        if is_less(metric, 1, 0):
            key = -key
        c.needs_failover = False
        self._keys.set(i, key if self._may_go(i, False) else INFINITY)
        self._fallback_keys.set(i, key if self._may_go(i, True) else INFINITY)
        if not c.needs_failover and not is_idle(c):
            self._oldest_ns = min(self._oldest_ns, c.time_ns)

    cdef bint _may_go(self, int32_t i, bint is_fallback) noexcept nogil:
        return (passes(self._candidates, &self._pipeline.filters, is_fallback, i)
                and self._candidates.items[i].is_schedulable
                and not (self._drops_marked and self._candidates.items[i].needs_failover))

    cdef void judge_all(self) noexcept nogil:
        cdef int32_t k
        self._oldest_ns = INT64_MAX
        for k in range(self._num_members):
            self.judge(self._members[k])

    cdef void _drop_stale(self) noexcept nogil:
        """Judge all again where a status may have grown too old since."""
        if self._oldest_ns < self._candidates.now_ns - self._staleness_ns:
            self.judge_all()

    cdef int32_t pick(self, Draws draws) noexcept nogil:
        self._drop_stale()
        if self._keys.least() < INFINITY:
            return pick_least(self._keys, draws)
        return pick_least(self._fallback_keys, draws)

    cpdef int check(self) except -1 nogil:
        """Raise RuntimeError unless the dispatcher would keep the same candidates at this instant."""
        cdef int32_t i, num_kept = 0
        cdef bint is_fallback
        self._drop_stale()
        self._keys.check()
        self._fallback_keys.check()
        self._candidates.begin(self._candidates.now_ns)
        self._dispatcher.measure(0)
        is_fallback = self._dispatcher.sift(self._infer_type)
        for i in range(self._candidates.count):
            num_kept += self._key(i, is_fallback) < INFINITY
        if num_kept != self._dispatcher.num_kept:
            return broken("Ranking: the dispatcher keeps another number of candidates")
        for i in range(self._dispatcher.num_kept):
            if self._key(self._dispatcher.kept[i], is_fallback) == INFINITY:
                return broken("Ranking: the dispatcher keeps a candidate that is left out")
        return 0

    cdef double _key(self, int32_t i, bint is_fallback) noexcept nogil:
        return self._fallback_keys.get(i) if is_fallback else self._keys.get(i)
