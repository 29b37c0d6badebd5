"""`weighted`: the replica with the best weighted sum of scores."""
from libc.math cimport INFINITY
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.routing.base cimport Router
from simulator.routing.filters.base cimport Filter
from simulator.routing.parts.pick cimport first_highest, pick_highest, pick_in_proportion
from simulator.routing.scoring.base cimport Scorer

from simulator.errors import BadAnswer
from simulator.routing.scoring.load import KvUtilisation, QueueDepth
from simulator.routing.scoring.prefix import PrecisePrefixCache, PrefixAffinity

cdef enum Picker:
    MAX_SCORE = 0
    RANDOM = 1
    WEIGHTED_RANDOM = 2

_PICKERS = {"max-score": MAX_SCORE, "random": RANDOM, "weighted-random": WEIGHTED_RANDOM}
_SCORERS = {"precise-prefix-cache": PrecisePrefixCache, "queue-depth": QueueDepth, "kv-utilization": KvUtilisation,
            "prefix-affinity": PrefixAffinity}
# Scorers of a profile: scorer, weight, its parameters.
_PROFILES = {
    "blis": (("precise-prefix-cache", 2.0, {}), ("queue-depth", 1.0, {}), ("kv-utilization", 1.0, {})),
    "blis-0.7.1": (("prefix-affinity", 3.0, {}), ("queue-depth", 2.0, {"load": "effective"}),
                   ("kv-utilization", 2.0, {})),
    "llm-d": (("queue-depth", 2.0, {}), ("kv-utilization", 2.0, {}),
              ("prefix-affinity", 3.0, {"capacity_blocks": 31_250})),
    "llm-d-router": (("queue-depth", 2.0, {}), ("kv-utilization", 2.0, {}),
                     ("prefix-affinity", 3.0, {"capacity_blocks": 31_250, "block_tokens": 64, "max_blocks": 2048})),
}


class WeightedParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The largest sum of weight x score wins.

    Scores are clamped to 0 .. 1, weights made to sum to 1. Sums are taken in the order of the scorers; among exact
    equals each replica has the same chance, unless ties = "number". Filters come first: they leave some replicas out,
    and scores that compare replicas compare the others.
    Source: BLIS's weighted router (inference-sim, sim/routing.go), the scheduling profiles of llm-d; llm-d-router
    ebab6879 for filters, its pickers, and its profile: prefix blocks of 64 tokens, at most 131,072 tokens.
    """

    profile: Annotated[Literal["blis", "blis-0.7.1", "llm-d", "llm-d-router"], Meta(description=(
        "scorers and weights where [cluster.routing] scorers gives none: the defaults of that system"))] = "blis"
    picker: Annotated[Literal["max-score", "random", "weighted-random"], Meta(description=(
        "max-score: the best sum; random: any replica; weighted-random: any, with a chance in proportion to its "
        "sum"))] = "max-score"
    ties: Annotated[Literal["number", "random"], Meta(description=(
        "with max-score, the choice among replicas with equal sums: number: the lowest number; random: "
        "drawn"))] = "random"


cdef int32_t keep_some(Filter chosen, int32_t row, int32_t* candidates, int32_t count, int64_t now_ns) except -1 nogil:
    """Return the number of candidates that a filter keeps, at the front. BadAnswer: it may not keep so many."""
    cdef int32_t num_kept = chosen.keep(row, candidates, count, now_ns)
    if not 0 <= num_kept <= count:
        with gil:
            raise BadAnswer(chosen, "keep", f"0 to {count}, the number of candidates", num_kept)
    chosen.num_emptied += num_kept == 0
    return num_kept


cdef struct Part:               # one scorer of the sum
    void* scorer                # borrowed
    double weight
    int32_t is_per_request
    int32_t is_zero             # its last scores were all 0


@cython.final
cdef class Weighted(Router):
    """The replica with the best weighted sum of scores."""

    Parameters = WeightedParameters
    takes_scorers = takes_filters = True

    cdef readonly list scorers
    cdef readonly list filters
    cdef Picker _picker
    cdef int32_t _num_parts
    cdef Part* _parts
    cdef double* _start         # [replica] 0, or -infinity: closed
    cdef double* _totals        # [replica]
    cdef bint _draws_ties
    cdef int32_t _num_filters
    cdef void** _filters        # borrowed
    cdef double* _eligible      # [replica] 0, or -infinity: closed, or left out by a filter. Without filters _start
    cdef int32_t* _candidates   # [replica]
    cdef int8_t* _kept          # [replica] for scorers
    cdef bint _has_changed      # replicas, since the scorers that depend on them were called

    def __cinit__(self, parameters, context):
        self._start = <double*>calloc(self.num_replicas, sizeof(double))
        self._totals = <double*>calloc(self.num_replicas, sizeof(double))
        self._eligible = <double*>calloc(self.num_replicas, sizeof(double))
        self._candidates = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        self._kept = <int8_t*>calloc(self.num_replicas, sizeof(int8_t))
        self._filters = <void**>calloc(len(context.filters) + 1, sizeof(void*))
        if (self._start == NULL or self._totals == NULL or self._eligible == NULL or self._candidates == NULL
                or self._kept == NULL or self._filters == NULL):
            raise MemoryError()
        self.scored = self._totals          # scorers in Python may draw, or count their calls

    def __init__(self, parameters, context):
        cdef Scorer scorer
        cdef int32_t i
        chosen = list(context.scorers) or [
            (_SCORERS[name], weight, _SCORERS[name].Parameters(**keys))
            for name, weight, keys in self.usual_scorers(parameters)]
        total = sum([weight for _, weight, _ in chosen])
        self.scorers = [kind(keys, context) for kind, _, keys in chosen]
        self.filters = [kind(keys, context) for kind, keys in context.filters]
        self._num_filters = len(self.filters)
        for i in range(self._num_filters):
            self._filters[i] = <void*>self.filters[i]
        self._picker, self._draws_ties = _PICKERS[parameters.picker], parameters.ties == "random"
        self._num_parts = len(chosen)
        self._parts = <Part*>calloc(self._num_parts, sizeof(Part))
        if self._parts == NULL:
            raise MemoryError()
        for i in range(self._num_parts):
            scorer = self.scorers[i]
            self._parts[i] = Part(<void*>scorer, chosen[i][1] / total, scorer.is_per_request, False)
        self.reads_state = self.has_scores = self.view.wants_in_flight = True

    @staticmethod
    def usual_scorers(parameters):
        """See Router."""
        return _PROFILES[parameters.profile]

    def __dealloc__(self):
        free(self._start)
        free(self._totals)
        free(self._parts)
        free(self._eligible)
        free(self._candidates)
        free(self._kept)
        free(self._filters)

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        self.score(row, now_ns, self._totals)
        if self._picker == MAX_SCORE:
            if self._draws_ties:
                return pick_highest(self._totals, self.num_replicas, self.draws)
            return first_highest(self._totals, self.num_replicas)
        if self._picker == RANDOM:
            return pick_highest(self._eligible if self._num_filters else self._start, self.num_replicas, self.draws)
        return pick_in_proportion(self._totals, self.num_replicas, self.draws)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef Part* part
        cdef double* values
        cdef double weight, value
        cdef int32_t i, k
        self._refresh(now_ns)
        if self._num_filters:
            self._filter(row, now_ns)
        memcpy(scores, self._eligible if self._num_filters else self._start, self.num_replicas * sizeof(double))
        for k in range(self._num_parts):
            part = &self._parts[k]
            if part.is_per_request or self._has_changed or self._num_filters > 0:
                part.is_zero = (<Scorer>part.scorer).rate(row, now_ns) == 0
            if part.is_zero:
                continue
            values, weight = (<Scorer>part.scorer).values, part.weight
            for i in range(self.num_replicas):
                value = values[i] if values[i] > 0.0 else 0.0           # NaN becomes 0
                scores[i] += weight * (value if value < 1.0 else 1.0)
        self._has_changed = False
        return 0

    cdef int _filter(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Find the replicas that are eligible, and let the scorers compare these."""
        cdef int32_t num_open = 0, num_kept, i, k
        for i in range(self.num_replicas):
            if self._start[i] == 0.0:
                self._candidates[num_open] = i
                num_open += 1
        num_kept = num_open
        for k in range(self._num_filters):
            if num_kept == 0:
                break
            num_kept = keep_some(<Filter>self._filters[k], row, self._candidates, num_kept, now_ns)
        if num_kept == num_open:
            memcpy(self._eligible, self._start, self.num_replicas * sizeof(double))
        else:
            memset(self._kept, 0, self.num_replicas)
            for i in range(self.num_replicas):
                self._eligible[i] = -INFINITY
            for i in range(num_kept):
                self._kept[self._candidates[i]] = True
                self._eligible[self._candidates[i]] = 0.0
        for k in range(self._num_parts):
            (<Scorer>self._parts[k].scorer).kept = NULL if num_kept == num_open else self._kept
        return 0

    cdef int _refresh(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i, k, replica
        cdef bint is_open
        self.view.look(now_ns)
        if self.view.num_changed == 0:
            return 0
        for i in range(self.view.num_changed):
            replica = self.view.changed[i]
            is_open = self.view.accounts[replica].is_routable
            self._start[replica] = 0.0 if is_open else -INFINITY
            for k in range(self._num_parts):
                (<Scorer>self._parts[k].scorer).note(replica, is_open)
        self.view.forget_changes()
        self._has_changed = True
        return 0

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t k
        for k in range(self._num_parts):
            (<Scorer>self._parts[k].scorer).sent(row, replica, now_ns)
        for k in range(self._num_filters):
            (<Filter>self._filters[k]).sent(row, replica, now_ns)
        return 0

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t k
        for k in range(self._num_parts):
            (<Scorer>self._parts[k].scorer).left(row, replica, now_ns)
        return 0

    cdef int closed(self, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t k
        for k in range(self._num_parts):
            (<Scorer>self._parts[k].scorer).closed(replica, now_ns)
        for k in range(self._num_filters):
            (<Filter>self._filters[k]).closed(replica, now_ns)
        return 0
