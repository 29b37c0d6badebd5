"""Llumnix's rescheduling policies, applied one after the other: pairs of a source and a destination, moves of a plan.

Source: llumnix-project/llumnix at 8a693b4, rescheduling_policy.go:getMigrationPairs and rescheduling_selectors.go.
Where ids decide there, the order of candidates decides here.
"""
cimport cython

from simulator.domain.replica_state cimport DECODE
from simulator.routing.llumnix.filters cimport apply_filters, fill_chain
from simulator.routing.llumnix.metrics cimport PREDICTED_TPOT, compute_metric, is_less

import numpy as np

from simulator.routing.llumnix.composition import metric_code
from simulator.routing.rescheduling.base import ORDER_NAMES, RULE_NAMES

PAIR_SELECTORS = ("metric_balance", "aggregate", "round_robin", "binpacking_mitigation", "binpacking_consolidation")


@cython.final
cdef class Pairs:
    """Pairs of candidates, and the lists they are made of."""

    def __init__(self, Candidates candidates):
        cdef int32_t[:, ::1] lists
        self._candidates = candidates
        self._arrays = np.zeros((4, candidates.count), np.int32)
        lists = self._arrays
        self.sources, self.destinations, self.first, self.second = (
            &lists[0, 0], &lists[1, 0], &lists[2, 0], &lists[3, 0])

    cdef void pair(self, const PairRule* rule) noexcept nogil:
        self.count = 0
        if self.num_sources == 0 or self.num_destinations == 0:
            return
        if rule.selector == ROUND_ROBIN:
            self._round_robin()
        elif rule.selector == METRIC_BALANCE or rule.selector == AGGREGATE:
            self._balance(rule)
        else:
            self._pack(rule.selector)

    cdef void _add(self, int32_t source, int32_t destination) noexcept nogil:
        if source != destination:
            self.first[self.count], self.second[self.count] = source, destination
            self.count += 1

    cdef void _balance(self, const PairRule* rule) noexcept nogil:
        """Pair the sorted lists, unit by unit where they count."""
        cdef bint is_uphill = rule.selector == AGGREGATE
        cdef int32_t i = 0, j = 0, unit, k
        cdef float source, destination
        self._sort(rule, is_uphill, self.sources, self.num_sources)
        self._sort(rule, not is_uphill, self.destinations, self.num_destinations)
        while i < self.num_sources and j < self.num_destinations:
            unit, k = self._unit(self.sources[i], rule.by_unit), self._unit(self.destinations[j], rule.by_unit)
            if unit != k or (rule.by_unit and unit < 0):
                i, j = i + (unit <= k), j + (k <= unit)
                continue
            source = self._candidates.metric(rule.metric, self.sources[i])
            destination = self._candidates.metric(rule.metric, self.destinations[j])
            if rule.only_strict and not (is_less(rule.metric, source, destination) if is_uphill
                                         else is_less(rule.metric, destination, source)):
                while i < self.num_sources and self._unit(self.sources[i], rule.by_unit) == unit:
                    i += 1
                continue
            if is_less(rule.metric, 1, 0):          # more is better: the source has less of it
                source, destination = destination, source
            if rule.least_difference <= 0 or source - destination >= rule.least_difference:
                self._add(self.sources[i], self.destinations[j])
            i, j = i + 1, j + 1

    cdef void _round_robin(self) noexcept nogil:
        cdef int32_t i
        for i in range(self.num_sources):
            self._add(self.sources[i], self.destinations[i % self.num_destinations])

    cdef void _pack(self, int32_t selector) noexcept nogil:
        """Pair one source with the slowest destination, one that is reserved for decodes first when consolidating."""
        cdef int32_t i, source = self.sources[0], destination = self.destinations[0]
        cdef float* tpot = self._candidates.metrics + <int64_t>PREDICTED_TPOT * self._candidates.count
        for i in range(1, self.num_sources):
            if (tpot[self.sources[i]] > tpot[source] if selector == BINPACKING_MITIGATION
                    else tpot[self.sources[i]] < tpot[source]):
                source = self.sources[i]
        for i in range(self.num_destinations):
            if selector == BINPACKING_CONSOLIDATION and (
                    self._candidates.items[self.destinations[i]].reserved == DECODE):
                destination = self.destinations[i]
                break
            if tpot[self.destinations[i]] > tpot[destination]:
                destination = self.destinations[i]
        self._add(source, destination)

    cdef int32_t _unit(self, int32_t i, bint by_unit) noexcept nogil:
        return self._candidates.items[i].unit if by_unit else 0

    cdef bint _is_ahead(self, const PairRule* rule, bint is_ascending, int32_t a, int32_t b) noexcept nogil:
        """Say whether candidate a comes before b: by unit, then by metric, then by number."""
        cdef int32_t unit = self._unit(a, rule.by_unit), other = self._unit(b, rule.by_unit)
        cdef float x = self._candidates.metric(rule.metric, a), y = self._candidates.metric(rule.metric, b)
        if unit != other:
            return unit < other
        if is_less(rule.metric, x, y):
            return is_ascending
        if is_less(rule.metric, y, x):
            return not is_ascending
        return a < b

    cdef void _sort(self, const PairRule* rule, bint is_ascending, int32_t* listed, int32_t count) noexcept nogil:
        """Sort by insertion: some hundred candidates, twice a second."""
        cdef int32_t i, j, one
        for i in range(1, count):
            one, j = listed[i], i
            while j > 0 and self._is_ahead(rule, is_ascending, one, listed[j - 1]):
                listed[j] = listed[j - 1]
                j -= 1
            listed[j] = one


@cython.final
cdef class MovePlanner:
    """Plans moves between `candidates` by a list of ReschedulingSpec."""

    def __init__(self, Candidates candidates, specs):
        cdef int32_t[::1] everyone
        if len(specs) > MAX_POLICIES:
            raise ValueError(f"at most {MAX_POLICIES} policies, found {len(specs)}")
        self._candidates, self._pairs = candidates, Pairs(candidates)
        self._owners = np.arange(candidates.count, dtype=np.int32)
        everyone = self._owners
        self._everyone = &everyone[0]
        for i, spec in enumerate(specs):
            fill_policy(&self._policies[<int32_t>i], spec)
        self._num_policies = <int32_t>len(specs)

    cdef int plan(self, Rescheduler rescheduler, int64_t now_ns) except -1 nogil:
        cdef int32_t p, k
        rescheduler.num_moves = 0
        self._candidates.begin(now_ns)
        for p in range(self._num_policies):
            self._find_pairs(&self._policies[p])
            for k in range(self._pairs.count):
                if not is_planned(rescheduler, self._pairs.second[k], self._pairs.first[k]):
                    rescheduler.add_move(self._pairs.first[k], self._pairs.second[k], p, &self._policies[p].selection)
        return 0

    cdef void _find_pairs(self, const ReschedulingPolicy* policy) noexcept nogil:
        """Filters see replicas of every kind, so that one that fails takes its whole domain along."""
        cdef int32_t k, count = self._candidates.count
        for k in range(policy.num_metrics):
            compute_metric(self._candidates, policy.metrics[k], self._everyone, count, 0)
        self._pairs.num_sources = apply_filters(
            self._candidates, &policy.sources, self._everyone, count, False, self._pairs.sources)
        self._pairs.num_destinations = apply_filters(
            self._candidates, &policy.destinations, self._everyone, count, False, self._pairs.destinations)
        self._pairs.pair(&policy.rule)


cdef bint is_planned(Rescheduler rescheduler, int32_t source, int32_t destination) noexcept nogil:
    cdef int32_t i
    for i in range(rescheduler.num_moves):
        if rescheduler.moves[i].source == source and rescheduler.moves[i].destination == destination:
            return True
    return False


cdef int fill_policy(ReschedulingPolicy* policy, object spec) except -1:
    fill_chain(&policy.sources, spec.sources, False)
    fill_chain(&policy.destinations, spec.destinations, False)
    policy.num_metrics = <int32_t>len(spec.metrics)
    for i, name in enumerate(spec.metrics):
        policy.metrics[<int32_t>i] = metric_code(name)
    rule, order, value = spec.selection
    policy.selection.rule, policy.selection.order = RULE_NAMES.index(rule), ORDER_NAMES.index(order)
    policy.selection.value = value
    policy.rule.selector, policy.rule.metric = PAIR_SELECTORS.index(spec.selector), policy.metrics[0]
    policy.rule.least_difference, policy.rule.by_unit = spec.least_difference, spec.by_unit
    policy.rule.only_strict = True
    return 0
