"""`llumnix`: moves requests off full, slow, nearly idle and failed replicas."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.routing.llumnix_candidates cimport Candidates
from simulator.routing.llumnix_filters cimport FilterChain, apply_filters, fill_chain
from simulator.routing.llumnix_metrics cimport compute_metric
from simulator.routing.llumnix_pairs cimport PairRule, Pairs
from simulator.routing.llumnix_reserved cimport reserve
from simulator.routing.llumnix_status cimport StatusFeed
from simulator.routing.rescheduling_base cimport Rescheduler, Selection

from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator.errors import InputErrors, KeyFault
from simulator.routing.llumnix_composition import MAX_SECONDS, FailoverDomainName, MetricName
from simulator.routing.llumnix_names import LITE, metric_code
from simulator.routing.llumnix_pairs import PAIR_SELECTORS
from simulator.routing.llumnix_profile_files import missing_tables, read_tables
from simulator.routing.llumnix_rescheduling import policy_names, policy_specs
from simulator.routing.rescheduling_base import ORDER_NAMES, RULE_NAMES

PolicyName = Literal["decode_load", "neutral_load", "prefill_failover", "decode_failover", "neutral_failover",
                     "binpacking_mitigation", "binpacking_consolidation"]
Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
Fraction = Annotated[float, Meta(gt=0, le=100)]


class LlumnixReschedulerParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys and defaults are the flags of llumnix-project/llumnix at 8a693b4 without "rescheduling" before them."""

    policies: Annotated[list[PolicyName], Meta(description="asked one after the other")] = [
        "decode_load", "prefill_failover", "decode_failover", "neutral_failover"]
    interval_ms: Annotated[float, Meta(ge=1, le=1e9, description="from one plan to the next")] = 500.0
    decode_load_metric: Annotated[MetricName, Meta(description="decode_load")] = "kv_cache_usage_ratio_projected"
    decode_load_threshold: Annotated[float, Meta(description="sources are at or above it")] = 1.0
    neutral_load_metric: Annotated[MetricName, Meta(description="neutral_load")] = "kv_cache_usage_ratio_projected"
    neutral_load_threshold: Annotated[float, Meta(description="sources are at or above it")] = 1.0
    load_balance_threshold: Annotated[float, Meta(description=(
        "*_load: least difference of source and destination; 0: any"))] = 0.7
    load_balance_scope: Annotated[Literal["cluster", "unit"], Meta(description=(
        "*_load: unit balances within units and has no thresholds"))] = "cluster"
    req_select_rule: Annotated[Literal["NUM_REQ", "TOKEN", "RATIO"], Meta(description=(
        "*_load: what is counted of requests that move"))] = "TOKEN"
    req_select_order: Annotated[Literal["LCR", "FCR", "LR", "SR", "FCW", "FCWSR"], Meta(description=(
        "*_load: last come running, first come running, longest, shortest, first come waiting, both"))] = "SR"
    req_select_value: Annotated[float, Meta(ge=-1, description="*_load: how many of what is counted")] = 1024.0
    failover_domain: Annotated[FailoverDomainName, Meta(description="what fails together")] = "instance-unit"
    data_parallel_size: Annotated[int, Meta(ge=1, description="as of the router")] = 1
    instance_staleness_s: Annotated[int, Meta(ge=0, le=int(MAX_SECONDS), description=(
        "a status more whole seconds old means a failure"))] = 60
    status_steps: Annotated[int, Meta(ge=0, description="as of the router")] = 1
    status_push_interval_s: Annotated[Seconds, Meta(description="as of the router")] = 0.04
    status_poll_interval_s: Annotated[Seconds, Meta(description="as of the router")] = 0.05
    enable_adaptive_pd: Annotated[bool, Meta(description=(
        "adds both bin-packing policies; replicas are reserved for prefill and decode"))] = False
    tpot_slo_ms: Annotated[float, Meta(ge=0, le=1e9, description="binpacking_*")] = 50.0
    tpot_slo_dispatch_threshold: Annotated[Fraction, Meta(description="destinations stay below this part")] = 0.85
    tpot_migrate_out_ceil_threshold: Annotated[Fraction, Meta(description="mitigation: sources are above")] = 0.95
    tpot_migrate_out_floor_threshold: Annotated[Fraction, Meta(description="consolidation: sources are below")] = 0.6
    tpot_profiling_data_path: Annotated[str, Meta(description="JSON of decode durations", extra={"path": True})] = ""
    ttft_profiling_data_path: Annotated[str, Meta(description="JSON of prefill durations", extra={"path": True})] = ""
    max_num_batched_tokens: Annotated[int, Meta(ge=1, le=2**30, description="of replicas that do not say")] = 65536

    @property
    def num_profiling_steps(self):
        """Nothing is learned here."""
        return 0


cdef enum:
    MAX_POLICIES = 8
    MAX_METRICS_USED = 4


cdef struct ReschedulingPolicy:
    FilterChain sources
    FilterChain destinations
    PairRule rule
    Selection selection
    int32_t metrics[MAX_METRICS_USED]
    int32_t num_metrics


@cython.final
cdef class LlumnixRescheduler(Rescheduler):
    """Llumnix's rescheduler; see `LlumnixReschedulerParameters` and llumnix_rescheduling.py.

    It knows statuses as the router does, but no account of what is in flight: upstream's standalone mode.
    """

    Parameters = LlumnixReschedulerParameters

    cdef readonly Candidates candidates
    cdef readonly object policies           # their names, as Move.policy counts them
    cdef StatusFeed _status
    cdef Pairs _pairs
    cdef ReschedulingPolicy _policies[MAX_POLICIES]
    cdef int32_t _num_policies
    cdef int32_t* _everyone
    cdef bint _is_adaptive
    cdef object _members

    def __init__(self, parameters, context):
        cdef int32_t[::1] members
        refuse_faults(parameters)
        self.interval_ns = round(1e6 * parameters.interval_ms)
        self._is_adaptive = parameters.enable_adaptive_pd
        self.candidates = Candidates(self.num_replicas, *read_tables(parameters))
        self._status = StatusFeed(self.view, self.candidates, parameters)
        self._pairs = Pairs(self.candidates)
        self._members = np.arange(self.num_replicas, dtype=np.int32)
        members = self._members
        self._everyone = &members[0]
        self.policies = policy_names(parameters)
        for i, spec in enumerate(policy_specs(parameters)):
            fill_policy(&self._policies[<int32_t>i], spec)
        self._num_policies = <int32_t>len(self.policies)

    cdef int plan(self, int64_t now_ns) except -1 nogil:
        self._status.refresh(now_ns)
        if self._is_adaptive:
            reserve(self.candidates)
        return self._decide(now_ns)

    cdef int _decide(self, int64_t now_ns) except -1 nogil:
        """Ask all policies what to do about what is known."""
        cdef int32_t p, k
        self.num_moves = 0
        self.candidates.begin(now_ns)
        for p in range(self._num_policies):
            self._find_pairs(&self._policies[p])
            for k in range(self._pairs.count):
                if not self._is_reverse_planned(self._pairs.first[k], self._pairs.second[k]):
                    self.add_move(self._pairs.first[k], self._pairs.second[k], p, &self._policies[p].selection)
        return 0

    cdef void _find_pairs(self, const ReschedulingPolicy* policy) noexcept nogil:
        """Filters see replicas of every kind, so that one that fails takes its domain along."""
        cdef int32_t k
        for k in range(policy.num_metrics):
            compute_metric(self.candidates, policy.metrics[k], self._everyone, self.num_replicas, 0)
        self._pairs.num_sources = apply_filters(
            self.candidates, &policy.sources, self._everyone, self.num_replicas, False, self._pairs.sources)
        self._pairs.num_destinations = apply_filters(
            self.candidates, &policy.destinations, self._everyone, self.num_replicas, False, self._pairs.destinations)
        self._pairs.pair(&policy.rule)

    cdef bint _is_reverse_planned(self, int32_t source, int32_t destination) noexcept nogil:
        cdef int32_t i
        for i in range(self.num_moves):
            if self.moves[i].source == destination and self.moves[i].destination == source:
                return True
        return False

    def decided(self, now_ns):
        """Return what is decided about the candidates as they are, like `planned` (for tests)."""
        self._decide(now_ns)
        return [(self.moves[i].source, self.moves[i].destination, self.policies[self.moves[i].policy],
                 RULE_NAMES[self.moves[i].selection.rule], ORDER_NAMES[self.moves[i].selection.order],
                 self.moves[i].selection.value) for i in range(self.num_moves)]


cdef int fill_policy(ReschedulingPolicy* policy, object spec) except -1:
    fill_chain(&policy.sources, spec.sources, False)
    fill_chain(&policy.destinations, spec.destinations, False)
    policy.num_metrics = <int32_t>len(spec.metrics)
    for i, name in enumerate(spec.metrics):
        policy.metrics[<int32_t>i] = metric_code(name)
    rule, order, value = spec.selection
    policy.selection.rule, policy.selection.order = RULE_NAMES.index(rule), ORDER_NAMES.index(order)
    policy.selection.value = value
    policy.rule.selector = PAIR_SELECTORS.index(spec.selector)
    policy.rule.metric = policy.metrics[0]
    policy.rule.least_difference, policy.rule.by_unit = spec.least_difference, spec.by_unit
    policy.rule.only_strict = True
    return 0


def refuse_faults(parameters):
    """Raise InputErrors where metrics cannot be computed."""
    names = policy_names(parameters)
    used = [getattr(parameters, f"{kind}_load_metric") for kind in ("decode", "neutral") if f"{kind}_load" in names]
    used += ["predicted_tpot" for name in names if name.startswith("binpacking")]
    faults = [f"cluster.rescheduling: {name} is known in lite mode only" for name in used if name == LITE[1]]
    faults += [f"cluster.rescheduling.{fault}" for fault in missing_tables(parameters, used)]
    if faults:
        raise InputErrors(map(KeyFault, dict.fromkeys(faults)))
