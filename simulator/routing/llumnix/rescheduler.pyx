"""`llumnix`: moves requests off full, slow, nearly idle and failed replicas."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.routing.llumnix.candidates cimport Candidates
from simulator.routing.llumnix.filters cimport reserve
from simulator.routing.llumnix.headroom cimport Headroom
from simulator.routing.llumnix.planner cimport MovePlanner
from simulator.routing.llumnix.status cimport StatusFeed
from simulator.routing.rescheduling.base cimport Movable, Move, Rescheduler, select_requests

from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator.errors import InputErrors, KeyFault
from simulator.routing.llumnix.composition import (
    LITE, MAX_SECONDS, FailoverDomainName, MetricName, policy_names, policy_specs)
from simulator.routing.llumnix.headroom import HeadroomSpecs, headroom_of
from simulator.routing.llumnix.predictor import missing_tables, read_tables
from simulator.routing.rescheduling.base import MOVABLE

PolicyName = Literal["decode_load", "neutral_load", "prefill_failover", "decode_failover", "neutral_failover",
                     "binpacking_mitigation", "binpacking_consolidation"]
Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
Fraction = Annotated[float, Meta(gt=0, le=100)]


class LlumnixReschedulerParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys and defaults are upstream's flags without "rescheduling" before them.

    Source: llumnix-project/llumnix at 8a693b4.
    """

    # Keys that act where replicas do only one phase of a request.
    FOR_ONE_PHASE: ClassVar[tuple[str, ...]] = ("decode_load_metric", "decode_load_threshold")

    policies: Annotated[tuple[PolicyName, ...], Meta(description="policies, applied one after the other")] = (
        "decode_load", "prefill_failover", "decode_failover", "neutral_failover")
    interval_ms: Annotated[float, Meta(ge=1, le=1e9, description="time from one plan to the next")] = 500.0
    decode_load_metric: Annotated[MetricName, Meta(description=(
        "decode_load: metric of load"))] = "kv_cache_usage_ratio_projected"
    decode_load_threshold: Annotated[float, Meta(description="decode_load: sources are at or above it")] = 1.0
    neutral_load_metric: Annotated[MetricName, Meta(description=(
        "neutral_load: metric of load"))] = "kv_cache_usage_ratio_projected"
    neutral_load_threshold: Annotated[float, Meta(description="neutral_load: sources are at or above it")] = 1.0
    headroom: HeadroomSpecs = []
    load_balance_threshold: Annotated[float, Meta(description=(
        "*_load: least difference of source and destination; 0: any"))] = 0.7
    load_balance_scope: Annotated[Literal["cluster", "unit"], Meta(description=(
        "*_load: unit balances within units and has no thresholds"))] = "cluster"
    req_select_rule: Annotated[Literal["NUM_REQ", "TOKEN", "RATIO"], Meta(description=(
        "*_load: quantity that is counted of requests that move"))] = "TOKEN"
    req_select_order: Annotated[Literal["LCR", "FCR", "LR", "SR", "FCW", "FCWSR"], Meta(description=(
        "*_load: order of moves: last arrival running, first arrival running, longest, shortest, first arrival "
        "waiting, both"))] = "SR"
    req_select_value: Annotated[float, Meta(ge=-1, description="*_load: budget of a move in that quantity")] = 1024.0
    failover_domain: Annotated[FailoverDomainName, Meta(description="unit of failure")] = "instance-unit"
    data_parallel_size: Annotated[int, Meta(ge=1, le=2**31 - 1, description="as the router's data_parallel_size")] = 1
    instance_staleness_s: Annotated[int, Meta(ge=0, le=int(MAX_SECONDS), description=(
        "a status more whole seconds old means a failure"))] = 60
    status_steps: Annotated[int, Meta(ge=0, le=2**31 - 1, description="as the router's status_steps")] = 1
    status_push_interval_s: Annotated[Seconds, Meta(description="as the router's status_push_interval_s")] = 0.04
    status_poll_interval_s: Annotated[Seconds, Meta(description="as the router's status_poll_interval_s")] = 0.05
    enable_adaptive_pd: Annotated[bool, Meta(description=(
        "adds both bin-packing policies; replicas are reserved for prefill and decode"))] = False
    tpot_slo_ms: Annotated[float, Meta(ge=0, le=1e9, description=(
        "binpacking_*: target of the time per output token"))] = 50.0
    tpot_slo_dispatch_threshold: Annotated[Fraction, Meta(description=(
        "binpacking_*: destinations stay below this part of tpot_slo_ms"))] = 0.85
    tpot_migrate_out_ceil_threshold: Annotated[Fraction, Meta(description=(
        "binpacking_mitigation: sources are above this part of tpot_slo_ms"))] = 0.95
    tpot_migrate_out_floor_threshold: Annotated[Fraction, Meta(description=(
        "binpacking_consolidation: sources are below this part of tpot_slo_ms"))] = 0.6
    tpot_profiling_data_path: Annotated[str, Meta(description="JSON of decode durations", extra={"path": True})] = ""
    ttft_profiling_data_path: Annotated[str, Meta(description="JSON of prefill durations", extra={"path": True})] = ""
    max_num_batched_tokens: Annotated[int, Meta(ge=1, le=2**30, description=(
        "tokens in an iteration of a replica that reports none"))] = 65536

    @property
    def num_profiling_steps(self):
        """Nothing is learned here."""
        return 0


@cython.final
cdef class LlumnixRescheduler(Rescheduler):
    """Llumnix's rescheduler; policies are in rescheduling.py.

    It uses statuses as the router does, but no account of requests in flight: upstream's standalone mode.
    """

    Parameters = LlumnixReschedulerParameters

    cdef readonly Candidates candidates
    cdef readonly object policies           # their names, as Move.policy counts them
    cdef StatusFeed _status
    cdef MovePlanner _planner
    cdef bint _is_adaptive
    cdef Headroom _headroom                 # of urgent requests; None: none is kept
    cdef Movable[::1] _others               # scratch: requests of a source that are not urgent, and their indexes
    cdef int32_t[::1] _index

    def __init__(self, parameters, context):
        refuse_faults(parameters)
        self.interval_ns = round(1e6 * parameters.interval_ms)
        self.policies = policy_names(parameters)
        self.candidates = Candidates(self.num_replicas, *read_tables(parameters))
        self._headroom = headroom_of("cluster.rescheduling", parameters, used_metrics(parameters), context)
        self._status = StatusFeed(self.view, self.candidates, parameters)
        self._status.headroom = self._headroom
        if self._headroom is not None:
            self._others = np.zeros(len(context.workload.requests), MOVABLE)
            self._index = np.zeros(len(context.workload.requests), np.int32)
        self._planner = MovePlanner(self.candidates, policy_specs(parameters))
        self._is_adaptive = parameters.enable_adaptive_pd

    cdef int plan(self, int64_t now_ns) except -1 nogil:
        self._status.refresh(now_ns)
        if self._is_adaptive:
            reserve(self.candidates)
        return self._planner.plan(self, now_ns)

    cdef int32_t select(self, const Move* move, const Movable* requests, int32_t count, int64_t kv_tokens,
                        int32_t* chosen, int32_t* scratch) noexcept nogil:
        """Choose urgent requests only where no other can go.

        Source: Sun et al., OSDI 2024, section 4.4: requests of lower priority move first, and shorter ones.
        """
        cdef int32_t i, num_others = 0, taken = 0
        if self._headroom is not None and move.selection.value >= 0:
            for i in range(count):
                if not self._headroom.is_urgent(requests[i].row):
                    self._others[num_others], self._index[num_others] = requests[i], i
                    num_others += 1
            if num_others > 0:
                taken = select_requests(&move.selection, &self._others[0], num_others, kv_tokens, chosen, scratch)
            for i in range(taken):
                chosen[i] = self._index[chosen[i]]
        return taken if taken > 0 else select_requests(&move.selection, requests, count, kv_tokens, chosen, scratch)


def used_metrics(parameters):
    """Return the names of the metrics of its policies."""
    names = policy_names(parameters)
    used = [getattr(parameters, f"{kind}_load_metric") for kind in ("decode", "neutral") if f"{kind}_load" in names]
    return used + ["predicted_tpot" for name in names if name.startswith("binpacking")]


def refuse_faults(parameters):
    """Raise InputErrors where metrics cannot be computed."""
    used = used_metrics(parameters)
    faults = [f"cluster.rescheduling: {name} is known in lite mode only" for name in used if name == LITE[1]]
    faults += [f"cluster.rescheduling.{fault}" for fault in missing_tables(parameters, used)]
    if faults:
        raise InputErrors(map(KeyFault, dict.fromkeys(faults)))
