"""`weighted`: the replica with the best weighted sum of scores."""
from libc.math cimport INFINITY, NAN
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.routing.base cimport Router
from simulator.routing.filters.base cimport Filter
from simulator.routing.parts.best_sums cimport BestSums
from simulator.routing.parts.pick cimport first_highest, highest, pick_highest, pick_in_proportion
from simulator.routing.scoring.base cimport Scorer

from simulator.errors import BadAnswer
from simulator.routing.scoring.load import KvUtilisation, QueueDepth
from simulator.routing.scoring.prefix import PrecisePrefixCache, PrefixAffinity

cdef enum:
    FEW_REPLICAS = 128          # so many are compared as fast as some are listed


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


def _usual(parameters):
    """Return (class, weight, parameters) of each scorer of a profile."""
    return [(_SCORERS[name], weight, _SCORERS[name].Parameters(**keys))
            for name, weight, keys in _PROFILES[parameters.profile]]


cdef int32_t keep_some(Filter chosen, int32_t row, int32_t* candidates, int32_t count, int64_t now_ns) except -1 nogil:
    """Return the number of candidates that a filter keeps, at the front. BadAnswer: it may not keep so many."""
    cdef int32_t num_kept = chosen.keep(row, candidates, count, now_ns)
    if not 0 <= num_kept <= count:
        with gil:
            raise BadAnswer(chosen, "keep", f"0 to {count}, the number of candidates", num_kept)
    chosen.num_emptied += num_kept == 0
    return num_kept


cdef inline double weighable(double score) noexcept nogil:
    """Return a score within 0 .. 1; of NaN: 0."""
    cdef double value = score if score > 0.0 else 0.0
    return value if value < 1.0 else 1.0


cdef inline void add_weighted(double* sums, const double* scores, double weight, int32_t count) noexcept nogil:
    cdef int32_t i
    for i in range(count):
        sums[i] += weight * weighable(scores[i])


cdef struct Part:               # one scorer of the sum
    void* scorer                # borrowed
    double weight
    int32_t is_per_request
    int32_t is_zero             # its last scores were all 0


@cython.final
cdef class Weighted(Router):
    """The replica with the best weighted sum of scores."""

    Parameters = WeightedParameters
    takes_scorers = takes_filters = counts_promised = True

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
    # Where at most one scorer depends on requests, and lists the replicas that it prefers: the sums of the others.
    cdef bint _keeps_sums
    cdef int32_t _listing       # the part of that scorer; -1: none
    cdef int32_t* _listed       # [replica]
    cdef void* _sums[2]         # BestSums, borrowed: where that scorer gives 0; where it gives another score
    cdef double[2] _rests       # the scores by that scorer with which they were made; NaN: they are to be made
    cdef object _kept_sums

    def __cinit__(self, parameters, context):
        self._start = <double*>calloc(self.num_replicas, sizeof(double))
        self._totals = <double*>calloc(self.num_replicas, sizeof(double))
        self._eligible = <double*>calloc(self.num_replicas, sizeof(double))
        self._candidates = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        self._kept = <int8_t*>calloc(self.num_replicas, sizeof(int8_t))
        self._filters = <void**>calloc(len(context.filters) + 1, sizeof(void*))
        self._listed = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        if (self._start == NULL or self._totals == NULL or self._eligible == NULL or self._candidates == NULL
                or self._kept == NULL or self._filters == NULL or self._listed == NULL):
            raise MemoryError()

    def __init__(self, parameters, context):
        cdef Scorer scorer
        cdef int32_t i
        chosen = list(context.scorers) or _usual(parameters)
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
        per_request = [k for k, scorer in enumerate(self.scorers) if scorer.is_per_request]
        self._listing = per_request[0] if per_request else -1
        self._keeps_sums = self._picker == MAX_SCORE and not self.filters and (
            not per_request or len(per_request) == 1 and self.scorers[per_request[0]].lists_some
            and self.num_replicas > FEW_REPLICAS)
        if self._keeps_sums:
            self._kept_sums = [BestSums(self.num_replicas) for _ in range(2)]
            for i in range(2):
                self._sums[i], self._rests[i] = <void*>self._kept_sums[i], NAN
        else:
            self.scored = self._totals      # scorers in Python may draw, or count their calls
        self.reads_state = self.has_scores = self.view.wants_in_flight = True

    @classmethod
    def weighs_promised(cls, parameters, scorers):
        """See Router."""
        return any(kind.reads_account(keys) for kind, _, keys in scorers or _usual(parameters))

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
        free(self._listed)

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t chosen
        if self._keeps_sums:
            chosen = self._route_by_sums(row, now_ns)
            if chosen >= -1:
                return chosen
        self.score(row, now_ns, self._totals)
        if self._picker == MAX_SCORE:
            if self._draws_ties:
                return pick_highest(self._totals, self.num_replicas, self.draws)
            return first_highest(self._totals, self.num_replicas)
        if self._picker == RANDOM:
            return pick_highest(self._eligible if self._num_filters else self._start, self.num_replicas, self.draws)
        return pick_in_proportion(self._totals, self.num_replicas, self.draws)

    cdef int32_t _route_by_sums(self, int32_t row, int64_t now_ns) except -3 nogil:
        """Pick among the replicas that the scorer of requests lists and the best of the others; -1: all are closed.

        -2: it does not list them this time; then all have to be compared.
        """
        cdef double rest = 0.0, best = -INFINITY, greatest
        cdef int32_t num_listed = 0, chosen, i
        cdef void* sums
        self._refresh(now_ns)
        if self._listing >= 0:
            num_listed = (<Scorer>self._parts[self._listing].scorer).rate_some(row, now_ns, self._listed, &rest)
            if num_listed < 0:
                return -2
        sums = self._sums_with(rest)
        greatest = (<BestSums>sums).greatest()
        if num_listed > 0:
            self._add_up_listed(num_listed, (<Scorer>self._parts[self._listing].scorer).values, sums, rest)
            best = highest(self._totals, num_listed)
        if best > greatest:
            return self._listed[pick_highest(self._totals, num_listed, self.draws) if self._draws_ties
                                else first_highest(self._totals, num_listed)]
        if best < greatest:         # listed replicas have no lower sums than with the score of the rest
            return self._pick_of(sums)
        for i in range(num_listed):
            (<BestSums>sums).set(self._listed[i], self._totals[i])
        chosen = self._pick_of(sums)
        for i in range(num_listed):
            (<BestSums>sums).set(self._listed[i], self._sum_of(self._listed[i], rest))
        return chosen

    cdef void _add_up_listed(self, int32_t num_listed, const double* scores, void* sums, double rest) noexcept nogil:
        """Write the sums of the listed replicas, with these scores by the scorer of requests, to `_totals`."""
        cdef double weight = self._parts[self._listing].weight
        cdef const double* others = (<BestSums>sums).values
        cdef int32_t i
        if rest == 0.0 and (self._listing == self._num_parts - 1 or self._num_parts == 2):     # as `score` does
            for i in range(num_listed):
                self._totals[i] = others[self._listed[i]] + weight * weighable(scores[self._listed[i]])
            return
        for i in range(num_listed):
            self._totals[i] = self._sum_of(self._listed[i], scores[self._listed[i]])

    cdef inline int32_t _pick_of(self, void* sums) noexcept nogil:
        return (<BestSums>sums).pick(self.draws) if self._draws_ties else (<BestSums>sums).first()

    cdef inline double _sum_of(self, int32_t replica, double listed) noexcept nogil:
        """Return the sum of a replica, as `score` adds it up; `listed`: its score by the scorer of requests."""
        cdef double total = self._start[replica]
        cdef int32_t k
        for k in range(self._num_parts):
            if k == self._listing:
                total += self._parts[k].weight * weighable(listed)
            elif not self._parts[k].is_zero:
                total += self._parts[k].weight * weighable((<Scorer>self._parts[k].scorer).values[replica])
        return total

    cdef void* _sums_with(self, double rest) noexcept nogil:
        """Return the sums of all replicas where the scorer of requests gives them this score."""
        cdef int32_t which = rest != 0.0, i, k
        cdef double* sums = (<BestSums>self._sums[which]).values
        if self._rests[which] == rest:
            return self._sums[which]
        memcpy(sums, self._start, self.num_replicas * sizeof(double))
        for k in range(self._num_parts):
            if k == self._listing:
                for i in range(self.num_replicas):
                    sums[i] += self._parts[k].weight * weighable(rest)
            elif not self._parts[k].is_zero:
                add_weighted(sums, (<Scorer>self._parts[k].scorer).values, self._parts[k].weight, self.num_replicas)
        (<BestSums>self._sums[which]).note_all()
        self._rests[which] = rest
        return self._sums[which]

    cdef int _rate_replicas(self, int64_t now_ns) except -1 nogil:
        """Call the scorers that depend on replicas alone, and update the sums of the changed replicas."""
        cdef bint has_rewritten = False, is_zero
        cdef int32_t i, k
        for k in range(self._num_parts):
            if k != self._listing:
                is_zero = (<Scorer>self._parts[k].scorer).rate(0, now_ns) == 0
                has_rewritten |= (<Scorer>self._parts[k].scorer).has_rewritten or is_zero != self._parts[k].is_zero
                self._parts[k].is_zero = is_zero
        for k in range(2):
            if has_rewritten:
                self._rests[k] = NAN
            for i in range(self.view.num_changed if self._rests[k] == self._rests[k] else 0):
                (<BestSums>self._sums[k]).set(
                    self.view.changed[i], self._sum_of(self.view.changed[i], self._rests[k]))
        return 0

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef Part* part
        cdef int32_t k
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
            add_weighted(scores, (<Scorer>part.scorer).values, part.weight, self.num_replicas)
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
        if self._keeps_sums:
            self._rate_replicas(now_ns)
        else:
            self._has_changed = True
        self.view.forget_changes()
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
