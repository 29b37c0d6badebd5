"""Llumnix's rescheduling policies, applied one after the other: the moves of a plan.

Source: llumnix-project/llumnix at 8a693b4, rescheduling_policy.go:getMigrationPairs.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.routing.llumnix.candidates cimport Candidates
from simulator.routing.llumnix.filters cimport apply_filters, fill_chain
from simulator.routing.llumnix.metrics cimport compute_metric
from simulator.routing.llumnix.pairs cimport Pairs
from simulator.routing.rescheduling.base cimport Rescheduler

import numpy as np

from simulator.routing.llumnix.names import metric_code
from simulator.routing.llumnix.pairs import PAIR_SELECTORS
from simulator.routing.rescheduling.base import ORDER_NAMES, RULE_NAMES


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

    def plan_for(self, Rescheduler rescheduler, now_ns):
        """Replace the moves of a rescheduler (for tests)."""
        self.plan(rescheduler, now_ns)


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
