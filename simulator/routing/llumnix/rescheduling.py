"""Composition of each rescheduling policy of Llumnix: sources, destinations, their pairing, requests that move.

Source: llumnix-project/llumnix at 8a693b4, rescheduling_policy_registry.go.
"""
from collections.abc import Callable
from typing import Any, NamedTuple

from simulator.routing.llumnix.composition import FilterSpec, below, guarded, slo_limit_ms


class ReschedulingSpec(NamedTuple):
    """One policy.

    sources, destinations : filters of the replicas that may give, and take.
    selector : how they are paired, a name of PAIR_SELECTORS.
    metrics : metrics to compute; pairs are ordered by the first.
    selection : rule, order and value of the requests that move.
    least_difference : pairs with a smaller difference of the metric are dropped; 0: none is.
    by_unit : pairs are found within each unit.
    """

    sources: list[FilterSpec]
    destinations: list[FilterSpec]
    selector: str
    metrics: tuple[str, ...] = ()
    selection: tuple[str, str, float] = ("NUM_REQ", "LR", -1.0)
    least_difference: float = 0.0
    by_unit: bool = False


ONE_NEWEST = ("NUM_REQ", "LCR", 1.0)
SOME_DECODES = 0.1                      # a decode batch larger than this is not empty


def policy_specs(parameters: Any) -> list[ReschedulingSpec]:
    """Return the policies of a rescheduler in the order in which they plan."""
    return [POLICIES[name](parameters) for name in policy_names(parameters)]


def policy_names(parameters: Any) -> list[str]:
    """Return their names; adaptive P/D adds both bin-packing policies."""
    added = ("binpacking_mitigation", "binpacking_consolidation") if parameters.enable_adaptive_pd else ()
    return list(dict.fromkeys([*parameters.policies, *added]))


def _load(infer_type: str) -> Callable[[Any], ReschedulingSpec]:
    def spec(parameters: Any) -> ReschedulingSpec:
        metric = getattr(parameters, f"{infer_type}_load_metric")
        threshold = getattr(parameters, f"{infer_type}_load_threshold")
        by_unit = parameters.load_balance_scope == "unit"
        own = FilterSpec(name="infer_type", infer_type=infer_type)
        full = [] if by_unit else [below(metric, threshold, invert=True)]
        free = [] if by_unit else [below(metric, threshold)]
        return ReschedulingSpec(
            guarded(parameters, own, *full), guarded(parameters, own, *free), "metric_balance", (metric,),
            (parameters.req_select_rule, parameters.req_select_order, parameters.req_select_value),
            parameters.load_balance_threshold, by_unit)
    return spec


def _failover(infer_type: str) -> Callable[[Any], ReschedulingSpec]:
    def spec(parameters: Any) -> ReschedulingSpec:
        own = FilterSpec(name="infer_type", infer_type=infer_type)
        failed = FilterSpec(name="failover_migration_source", failover_domain=parameters.failover_domain,
                            instance_staleness_s=parameters.instance_staleness_s)
        return ReschedulingSpec([own, failed], guarded(parameters, own), "round_robin")
    return spec


def _mitigation(parameters: Any) -> ReschedulingSpec:
    not_prefill = FilterSpec(name="reserved", infer_type="prefill")
    ceiling_ms = slo_limit_ms(parameters.tpot_slo_ms, parameters.tpot_migrate_out_ceil_threshold)
    return ReschedulingSpec(
        guarded(parameters, not_prefill, below("predicted_tpot", ceiling_ms, invert=True)),
        guarded(parameters, not_prefill, below("predicted_tpot", _dispatch_limit_ms(parameters))),
        "binpacking_mitigation", ("predicted_tpot",), ONE_NEWEST)


def _consolidation(parameters: Any) -> ReschedulingSpec:
    not_prefill = FilterSpec(name="reserved", infer_type="prefill")
    not_decode = FilterSpec(name="reserved", infer_type="decode")
    busy = below("decode_batch_size", SOME_DECODES, invert=True)
    floor_ms = slo_limit_ms(parameters.tpot_slo_ms, parameters.tpot_migrate_out_floor_threshold)
    return ReschedulingSpec(
        guarded(parameters, not_prefill, not_decode, below("predicted_tpot", floor_ms), busy),
        guarded(parameters, not_prefill, below("predicted_tpot", _dispatch_limit_ms(parameters)), busy),
        "binpacking_consolidation", ("predicted_tpot", "decode_batch_size"), ONE_NEWEST)


def _dispatch_limit_ms(parameters: Any) -> float:
    return slo_limit_ms(parameters.tpot_slo_ms, parameters.tpot_slo_dispatch_threshold)


POLICIES = {
    "decode_load": _load("decode"), "neutral_load": _load("neutral"),
    "prefill_failover": _failover("prefill"), "decode_failover": _failover("decode"),
    "neutral_failover": _failover("neutral"),
    "binpacking_mitigation": _mitigation, "binpacking_consolidation": _consolidation,
}
