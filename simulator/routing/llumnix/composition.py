"""Composition of a Llumnix scheduler: for each infer type metrics, filters and a selector; and of its rescheduling.

Source of the built-in compositions: llumnix-project/llumnix at 8a693b4, the dispatch policy registry,
utils.go:verifyConfig and rescheduling_policy_registry.go.
"""
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from simulator.errors import InputErrors, KeyFault
from simulator.routing.llumnix.predictor import missing_tables

# The order of the enum Metric in metrics.pxd.
METRIC_NAMES = (
    "kv_cache_usage_ratio_projected", "decode_batch_size", "num_waiting_requests", "all_prefills_tokens_num",
    "kv_cache_hit_len", "cache_aware_all_prefills_tokens_num", "num_requests", "all_decodes_tokens_num",
    "num_requests_lite", "num_tokens", "predicted_ttft", "predicted_tpot", "freeness")
# The order of the enums FilterKind and FailoverDomain in filters.pxd.
FILTER_NAMES = ("schedulability", "staleness", "metric", "infer_type", "reserved", "failover",
                "failover_migration_source")
FAILOVER_DOMAINS = ("instance", "node", "instance-unit", "node-unit")
# The order of the enum SelectorKind in selectors.pxd.
SELECTOR_NAMES = ("metric", "fixed_preference", "slo_prefill_adaptive", "slo_decode_adaptive")
# The order of the enum InferType in domain/replica_state.pxd.
INFER_TYPES = ("neutral", "prefill", "decode")

PREDICTED = ("predicted_ttft", "predicted_tpot")    # metrics that need the profiling tables
LITE = ("num_requests", "num_tokens")               # all that the gateway knows in lite mode
MetricName = Literal[tuple(name for name in METRIC_NAMES if name != "num_requests_lite")]
InferTypeName = Literal["neutral", "prefill", "decode"]
FailoverDomainName = Literal["instance", "node", "instance-unit", "node-unit"]
MAX_SECONDS = 1e6
# Load metrics of full mode, and keys that only full mode has.
USUAL = {"dispatch_neutral_load_metric": "all_prefills_tokens_num",
         "dispatch_prefill_load_metric": "all_prefills_tokens_num",
         "dispatch_decode_load_metric": "kv_cache_usage_ratio_projected"}
FULL_ALONE = ("enable_cache_aware_scheduling", "enable_predictor_enhanced_scheduling", "enable_adaptive_pd",
              "enable_instance_status_local_account")
WholeSeconds = Annotated[int, Meta(ge=0, le=int(MAX_SECONDS))]


def metric_code(name: str, is_lite: bool = False) -> int:
    """Return the code of a metric; `num_requests` means another thing in lite mode."""
    return METRIC_NAMES.index("num_requests_lite" if is_lite and name == "num_requests" else name)


class FilterSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One filter; keys that a filter does not need are left out."""

    name: Annotated[Literal["schedulability", "staleness", "metric", "infer_type", "reserved", "failover",
                            "failover_migration_source"], Meta(description="name of the filter")]
    metric: Annotated[MetricName | None, Meta(description="metric: metric that is compared")] = None
    threshold: Annotated[float | None, Meta(description="metric: values not strictly better are rejected")] = None
    skip_in_fallback: Annotated[bool, Meta(description="metric: skipped after all were rejected")] = True
    infer_type: Annotated[InferTypeName | None, Meta(description=(
        "infer_type: the type that passes; reserved: the type, prefill or decode, for which a replica is "
        "reserved"))] = None
    instance_staleness_s: Annotated[WholeSeconds | None, Meta(description=(
        "staleness, failover_migration_source: whole seconds; default: that of the policy"))] = None
    failover_domain: Annotated[FailoverDomainName | None, Meta(description=(
        "failover, failover_migration_source: unit of failure; default: that of the policy"))] = None
    invert: Annotated[bool, Meta(description="let pass exactly the replicas that it would reject")] = False


class SelectorSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The choice among the replicas that passed the filters."""

    name: Annotated[Literal["metric", "fixed_preference", "slo_prefill_adaptive", "slo_decode_adaptive"],
                    Meta(description="name of the selector")] = "metric"
    metrics: Annotated[list[MetricName], Meta(max_length=8, description=(
        "metric: metrics, compared one after the other"))] = []
    top_k: Annotated[int, Meta(ge=1, le=2**31 - 1, description="metric: draw one of the k best")] = 1
    tpot_limit_ms: Annotated[float, Meta(ge=0, description=(
        "slo_decode_adaptive: after a fallback, the slowest replica below this is chosen, or else the fastest"))] = 0.0


class InferTypeSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The choice among replicas of one infer type."""

    infer_type: Annotated[InferTypeName, Meta(description="infer type of the replicas")]
    metrics: Annotated[list[MetricName], Meta(max_length=8, description=(
        "metrics to compute besides those of filters and selector"))] = []
    filters: Annotated[list[FilterSpec], Meta(max_length=16, description="a replica must pass all filters")] = []
    selector: Annotated[SelectorSpec, Meta(description="choice among the replicas that pass")] = SelectorSpec()

    def needed(self) -> list[str]:
        """Return all metrics to compute."""
        own = {"slo_prefill_adaptive": PREDICTED[:1], "slo_decode_adaptive": PREDICTED}.get(self.selector.name, ())
        filtered = [each.metric for each in self.filters if each.metric]
        return list(dict.fromkeys([*self.metrics, *self.selector.metrics, *filtered, *own]))


def compose(parameters: Any) -> dict[str, InferTypeSpec]:
    """Return the choice for each infer type.

    A built-in policy may leave a type out.

    Parameters
    ----------
    parameters : LlumnixParameters.

    Raises
    ------
    InputErrors
        A composition of the user that cannot work.
    """
    build = {"load-balance": _load_balance, "slo": _slo, "flood": _flood}[parameters.scheduling_policy]
    if parameters.scheduling_policy == "slo" and parameters.enable_adaptive_pd:
        build = _adaptive_slo
    specs = {spec.infer_type: spec for spec in build(parameters)}
    given = {spec.infer_type: _completed(spec, parameters) for spec in parameters.infer_types}
    faults = [fault for i, spec in enumerate(parameters.infer_types) for fault in _faults(spec, i, parameters)]
    if len(given) < len(parameters.infer_types):
        faults.append("cluster.routing.infer_types: an infer type is given twice")
    used = [name for spec in (specs | given).values() for name in spec.needed()]
    faults += [f"cluster.routing.{fault}" for fault in missing_tables(parameters, used)]
    if faults:
        raise InputErrors(map(KeyFault, faults))
    return specs | given


def settled(parameters: Any) -> dict[str, Any]:
    """Return the keys that the mode decides.

    They are its defaults; under `upstream_compat` also upstream's replacements for options that the mode lacks.

    Raises
    ------
    ValueError
        An option was given that the mode lacks; upstream turns it off or replaces it silently.
    """
    is_lite = parameters.mode == "lite"
    if is_lite and parameters.scheduling_policy != "load-balance":
        raise ValueError(f'scheduling_policy: "{parameters.scheduling_policy}" needs mode = "full"; lite mode offers '
                         '"load-balance" alone')
    given = {key: getattr(parameters, key) for key in USUAL}
    foreign = [key for key, metric in given.items() if metric is not None and not _offers(metric, is_lite)]
    beyond = [key for key in FULL_ALONE if is_lite and getattr(parameters, key)]
    if (foreign or beyond) and not parameters.upstream_compat:
        raise ValueError("; ".join([_is_foreign(key, given[key], is_lite) for key in foreign] + [
            f'{key}: expected false in mode = "lite", which hears nothing from replicas, found true'
            for key in beyond]))
    found = {key: LITE[1] if is_lite else USUAL[key]
             for key, metric in given.items() if metric is None or key in foreign}
    if not is_lite and "dispatch_neutral_load_metric" in foreign:
        found["dispatch_neutral_load_metric"] = "kv_cache_usage_ratio_projected"    # upstream's, not its default
    if parameters.enable_instance_status_local_account is None:
        found["enable_instance_status_local_account"] = not is_lite
    return found | dict.fromkeys(beyond, False)


def _offers(metric: str, is_lite: bool) -> bool:
    """Say whether the policy load-balance may use a metric."""
    return metric in LITE if is_lite else metric not in (LITE[1], *PREDICTED)


def _is_foreign(key: str, metric: str, is_lite: bool) -> str:
    known = ", ".join(f'"{name}"' for name in METRIC_NAMES if name in get_args(MetricName) and _offers(name, is_lite))
    return f'{key}: expected one of {known} in mode = "{"lite" if is_lite else "full"}", found "{metric}"'


def slo_limit_ms(slo_ms: float, threshold: float) -> float:
    """Return a part of an SLO: a product of float32, as upstream."""
    return float(np.float32(slo_ms) * np.float32(threshold))


def below(metric: str, threshold: float, **more: Any) -> FilterSpec:
    """Return the filter that passes values strictly better than a threshold."""
    return FilterSpec(name="metric", metric=metric, threshold=threshold, **more)


def guarded(parameters: Any, *filters: FilterSpec) -> list[FilterSpec]:
    """Return a full-mode policy's filters and those common to all such policies."""
    return [FilterSpec(name="schedulability"),
            FilterSpec(name="staleness", instance_staleness_s=parameters.instance_staleness_s), *filters,
            FilterSpec(name="failover", failover_domain=parameters.failover_domain)]


def _load_balance(parameters: Any) -> list[InferTypeSpec]:
    specs = []
    for kind in ("prefill", "decode", "neutral"):
        metric = getattr(parameters, f"dispatch_{kind}_load_metric")
        filters = [below(metric, getattr(parameters, f"dispatch_{kind}_load_threshold"))]
        order = [metric]
        if parameters.enable_cache_aware_scheduling and kind != "decode":
            order.insert(0, parameters.dispatch_prefill_cache_locality_metric)
        specs.append(InferTypeSpec(
            infer_type=kind, filters=filters if parameters.mode == "lite" else guarded(parameters, *filters),
            selector=SelectorSpec(metrics=order, top_k=parameters.dispatch_top_k)))
    return specs


def _slo_limits(parameters: Any) -> tuple[float, float]:
    return (slo_limit_ms(parameters.ttft_slo_ms, parameters.ttft_slo_dispatch_threshold),
            slo_limit_ms(parameters.tpot_slo_ms, parameters.tpot_slo_dispatch_threshold))


def _slo(parameters: Any) -> list[InferTypeSpec]:
    limits = dict(zip(PREDICTED, _slo_limits(parameters), strict=True))
    return [InferTypeSpec(infer_type=kind, selector=SelectorSpec(metrics=[metric]),
                          filters=guarded(parameters, below(metric, limits[metric], skip_in_fallback=False)))
            for kind, metric in zip(("prefill", "decode"), PREDICTED, strict=True)]


def _adaptive_slo(parameters: Any) -> list[InferTypeSpec]:
    ttft_ms, tpot_ms = _slo_limits(parameters)
    metrics = [*PREDICTED, "decode_batch_size"]
    # Upstream compares the TTFT of decodes with the limit of TPOT, and its selector has a limit of zero.
    decode_ttft_ms, selector_ms = (tpot_ms, 0.0) if parameters.upstream_compat else (ttft_ms, tpot_ms)
    return [
        InferTypeSpec(infer_type="prefill", metrics=metrics, selector=SelectorSpec(name="slo_prefill_adaptive"),
                      filters=guarded(parameters, FilterSpec(name="reserved", infer_type="decode"),
                                      below("predicted_ttft", ttft_ms),
                                      below("decode_batch_size", 0.1, skip_in_fallback=False))),
        InferTypeSpec(infer_type="decode", metrics=metrics,
                      selector=SelectorSpec(name="slo_decode_adaptive", tpot_limit_ms=selector_ms),
                      filters=guarded(parameters, FilterSpec(name="reserved", infer_type="prefill"),
                                      below("predicted_ttft", decode_ttft_ms), below("predicted_tpot", tpot_ms)))]


def _flood(parameters: Any) -> list[InferTypeSpec]:
    return [InferTypeSpec(infer_type=kind, filters=guarded(parameters), selector=SelectorSpec(name="fixed_preference"))
            for kind in ("prefill", "decode", "neutral")]


def _completed(spec: InferTypeSpec, parameters: Any) -> InferTypeSpec:
    """Fill in the policy's values for keys that filters leave out."""
    filters = [replace(one, instance_staleness_s=(one.instance_staleness_s if one.instance_staleness_s is not None
                                                  else parameters.instance_staleness_s),
                       failover_domain=one.failover_domain or parameters.failover_domain) for one in spec.filters]
    return replace(spec, filters=filters)


def _faults(spec: InferTypeSpec, index: int, parameters: Any) -> list[str]:
    place = f"cluster.routing.infer_types[{index}]"
    faults = []
    for i, one in enumerate(spec.filters):
        if one.name == "metric" and (one.metric is None or one.threshold is None):
            faults.append(f"{place}.filters[{i}]: a metric filter needs metric and threshold")
        if one.name == "infer_type" and one.infer_type is None:
            faults.append(f"{place}.filters[{i}].infer_type: missing")
        if one.name == "reserved" and one.infer_type not in ("prefill", "decode"):
            faults.append(f'{place}.filters[{i}].infer_type: expected "prefill" or "decode", found {one.infer_type}')
    if spec.selector.name == "metric" and not spec.selector.metrics:
        faults.append(f"{place}.selector.metrics: expected at least one metric")
    foreign = [name for name in spec.needed() if (name not in LITE if parameters.mode == "lite" else name == LITE[1])]
    faults += [f'{place}: {name} is not known in mode "{parameters.mode}"' for name in foreign]
    return faults


# ---- rescheduling

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
