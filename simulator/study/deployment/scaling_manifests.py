"""The autoscaler `hpa` as a HorizontalPodAutoscaler of Kubernetes, or a ScaledObject of KEDA.

Sources: Kubernetes 1.35, API text of autoscaling/v2 (tolerance: HPAConfigurableTolerance), and replica_calculator.go
for the targets: of metrics of pods, ceil(ready x mean / averageValue); of others by Value, ceil(ready x metric /
value), by AverageValue, ceil(metric / averageValue). KEDA, ScaledObject specification, latest, and its scaler
prometheus. Names of metrics: vLLM's, and llm-d-router's for the requests that wait at the gateway.
"""
from collections.abc import Iterator
from typing import Any

from simulator import registry
from simulator.config.experiment import Pool
from simulator.domain.autoscaling import Autoscaling, Rate, Rates
from simulator.errors import InputErrors, KeyFault
from simulator.study.deployment.router_settings import Settings

PLACE = "autoscaling."
HPA, KEDA = "hpa", "keda"
SYNC_S = 15.0                   # --horizontal-pod-autoscaler-sync-period
TOLERANCE = 0.1                 # --horizontal-pod-autoscaler-tolerance
SELECT = {"max": "Max", "min": "Min", "disabled": "Disabled"}
SERVER = "${PROMETHEUS_URL}"
OF_PODS = {"waiting": "vllm:num_requests_waiting", "running": "vllm:num_requests_running",
           "kv_cache": "vllm:kv_cache_usage_perc"}
QUEUED = "llm_d_epp_flow_control_queue_size"
TTFT = "vllm:time_to_first_token_seconds"
OF_REQUESTS = ("waiting", "running", "in_flight", "queued", "requests")     # metrics that count them
WINDOWS = ("scale_up_stabilization_window_s", "scale_down_stabilization_window_s")
SAID = ("policy", "targets", "tolerance", "min_replicas", "max_replicas", "stabilization", *WINDOWS, "rates.up",
        "rates.down", "rates.select", "rates.select_down")
OF_ZERO = ("zero.poll_s", "zero.cooldown_s", "zero.activation")
OF_QUERIES = ("metrics.window_s", "metrics.aggregate")


def manifests(autoscaling: Autoscaling | None, pools: tuple[Pool, ...], name: str) -> Settings:
    """Return a document for each pool.

    name : of the format, "hpa" or "keda".

    Raises
    ------
    InputErrors
        Another autoscaler, or keys of it that Kubernetes or KEDA does not have: the others alone would be another one.
    """
    if faults := [KeyFault(f"{PLACE.rstrip('.')}{fault}") for fault in _faults(autoscaling, pools, name)]:
        raise InputErrors(faults)
    made = _hpa if name == HPA else _keda
    said = [*SAID, *(OF_ZERO if autoscaling.zero is not None else ()),
            *(OF_QUERIES if autoscaling.metrics is not None else ()),
            *(["interval_s"] if autoscaling.interval_s in (None, SYNC_S) else [])]
    return Settings([made(autoscaling, pool) for pool in pools], frozenset(f"{PLACE}{key}" for key in said),
                    tuple(_notes(autoscaling, name)))


def behaviour(autoscaling: Autoscaling) -> dict[str, Any]:
    """Return the behaviour of both directions: windows, rates, tolerance."""
    policy = registry.load("autoscaler", "hpa")
    rates: Rates = autoscaling.rates or policy.rates
    windows = [default if (given := getattr(autoscaling, key)) is None else given
               for key, default in zip(WINDOWS, policy.windows_s, strict=True)]
    tolerance = autoscaling.parameters.tolerance
    more = {} if tolerance == TOLERANCE else {"tolerance": f"{tolerance:g}"}
    return {way: {"stabilizationWindowSeconds": int(window), "selectPolicy": SELECT[select],
                  "policies": list(map(_policy, bounds))} | more
            for way, window, select, bounds in (
                ("scaleUp", windows[0], rates.select, rates.up),
                ("scaleDown", windows[1], rates.select_down or rates.select, rates.down))}


def query_of(target: Any, autoscaling: Autoscaling) -> str:
    """Return the PromQL of a metric: with `value` a mean, else a sum of replicas."""
    if target.metric == "ttft":
        return _ttft(target, autoscaling)
    if target.metric == "queued":
        return f"sum({QUEUED})"
    over = "avg" if target.value is not None else "sum"
    if target.metric in OF_PODS:
        return f"{over}({_ranged(OF_PODS[target.metric], autoscaling)})"
    waiting, running = (_ranged(OF_PODS[key], autoscaling) for key in ("waiting", "running"))
    in_flight = f"{over}({waiting} + {running})"
    return in_flight if target.metric == "in_flight" else f"{in_flight} + sum({QUEUED})"


def _hpa(autoscaling: Autoscaling, pool: Pool) -> dict[str, Any]:
    low, high = _bounds(autoscaling, pool)
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": pool.name},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": pool.name},
                     "minReplicas": low, "maxReplicas": high,
                     "metrics": [_metric(each) for each in autoscaling.parameters.targets],
                     "behavior": behaviour(autoscaling)}}


def _metric(target: Any) -> dict[str, Any]:
    if target.metric in OF_PODS and target.value is not None:
        return {"type": "Pods", "pods": {"metric": {"name": metric_name(target)}, "target": {
            "type": "AverageValue", "averageValue": f"{target.value:g}"}}}
    kind, key, value = (("Value", "value", target.value) if target.value is not None else
                        ("AverageValue", "averageValue", target.average_value))
    return {"type": "External", "external": {"metric": {"name": metric_name(target)}, "target": {
        "type": kind, key: f"{value:g}"}}}


def metric_name(target: Any) -> str:
    """Return the name under which an adapter serves a metric."""
    if target.metric == "ttft":
        return f"ttft_seconds_{'mean' if target.quantile is None else f'p{100 * target.quantile:g}'}"
    if target.metric in OF_PODS and target.value is not None:
        return OF_PODS[target.metric].replace("vllm:", "vllm_")
    return f"{target.metric}_{'mean' if target.value is not None else 'sum'}"


def _keda(autoscaling: Autoscaling, pool: Pool) -> dict[str, Any]:
    low, high = _bounds(autoscaling, pool)
    zero, spec = autoscaling.zero, {"scaleTargetRef": {"name": pool.name}}
    if zero is not None:
        spec |= {"pollingInterval": int(zero.poll_s), "cooldownPeriod": int(zero.cooldown_s)}
    spec |= {"minReplicaCount": 0 if zero is not None else low, "maxReplicaCount": high,
             "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behaviour(autoscaling)}}, "triggers": []}
    for target in autoscaling.parameters.targets:
        by_value = target.value is not None
        metadata = {"serverAddress": SERVER, "query": query_of(target, autoscaling),
                    "threshold": f"{target.value if by_value else target.average_value:g}"}
        if zero is not None and target.metric in OF_REQUESTS:
            metadata["activationThreshold"] = str(zero.activation)
        spec["triggers"].append({"type": "prometheus", "metricType": "Value" if by_value else "AverageValue",
                                 "metadata": metadata})
    return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": pool.name}, "spec": spec}


def _bounds(autoscaling: Autoscaling, pool: Pool) -> tuple[int, int]:
    """Return the least and the largest number of replicas of a pool."""
    return autoscaling.min_replicas, pool.max_replicas or autoscaling.max_replicas or pool.at_start


def _policy(rate: Rate) -> dict[str, Any]:
    kind, value = ("Percent", rate.percent) if rate.percent is not None else ("Pods", rate.replicas)
    return {"type": kind, "value": value, "periodSeconds": int(rate.period_s)}


def _ranged(metric: str, autoscaling: Autoscaling) -> str:
    """Return a metric of replicas, or its aggregate over the window of the scrapes."""
    metrics = autoscaling.metrics
    if metrics is None or metrics.aggregate == "last":
        return metric
    return f"{'avg' if metrics.aggregate == 'mean' else 'max'}_over_time({metric}[{_range(autoscaling)}])"


def _ttft(target: Any, autoscaling: Autoscaling) -> str:
    window = _range(autoscaling)
    if target.quantile is None:
        return f"sum(rate({TTFT}_sum[{window}])) / sum(rate({TTFT}_count[{window}]))"
    return f"histogram_quantile({target.quantile:g}, sum by (le) (rate({TTFT}_bucket[{window}])))"


def _range(autoscaling: Autoscaling) -> str:
    metrics = autoscaling.metrics
    return f"{60 if metrics is None else round(metrics.window_s)}s"


def _notes(autoscaling: Autoscaling, name: str) -> Iterator[str]:
    """Yield differences, and tasks of the operator, "key = value: why"."""
    targets = autoscaling.parameters.targets
    if name == HPA:
        for target in targets:
            query = (OF_PODS[target.metric] if metric_name(target).startswith("vllm_") else
                     query_of(target, autoscaling))
            yield f"{PLACE}targets = {target.metric}: an adapter serves {metric_name(target)} as {query}"
    if any(target.metric in ("in_flight", "requests") for target in targets):
        yield (f"{PLACE}targets = in_flight, requests: waiting and running requests of replicas are taken for those "
               "in flight by the gateway's account")
    if autoscaling.zero is not None and any(target.metric != "requests" for target in targets):
        yield f"{PLACE}zero.activation = {autoscaling.zero.activation}: KEDA compares it with each trigger's own metric"


def _faults(autoscaling: Autoscaling | None, pools: tuple[Pool, ...], name: str) -> Iterator[str]:
    if autoscaling is None:
        yield f': missing; --as {name} writes the autoscaler "hpa"'
        return
    if autoscaling.policy != "hpa":
        yield f'.policy: --as {name}: expected "hpa", found "{autoscaling.policy}"'
        return
    if autoscaling.stabilization == "unbroken":
        yield f'.stabilization: --as {name}: expected "extreme", the rule of Kubernetes, found "unbroken"'
    if name == HPA and autoscaling.zero is not None:
        yield ".zero: --as hpa: expected none; --as keda writes it"
    roles = [(pool.role, pool.model) for pool in pools]
    if any(roles.count(each) > 1 for each in roles):
        yield f": --as {name}: expected one pool for a model: Kubernetes scales each by itself"
    if name == HPA and autoscaling.min_replicas == 0:
        yield ".min_replicas: --as hpa: expected at least 1, found 0"
    seconds = {key: getattr(autoscaling, key) for key in WINDOWS}
    rates = autoscaling.rates or Rates()
    seconds |= {f"rates.{way}[{number}].period_s": rate.period_s for way, bounds in (("up", rates.up), (
        "down", rates.down)) for number, rate in enumerate(bounds)}
    if (zero := autoscaling.zero) is not None:
        seconds |= {"zero.poll_s": zero.poll_s, "zero.cooldown_s": zero.cooldown_s}
    for key, value in seconds.items():
        if value is not None and (value != int(value) or ("period" in key and value < 1)):
            yield f".{key}: --as {name}: expected whole seconds, found {value:g}"
