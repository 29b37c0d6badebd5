"""`hpa`: the number of replicas by the rule of Kubernetes' HorizontalPodAutoscaler.

Source: Kubernetes, pkg/controller/podautoscaler/replica_calculator.go, getUsageRatioReplicaCount and
GetExternalPerPodMetricReplicas; horizontal.go, computeReplicasForMetrics.
"""
import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.domain.autoscaling import Rates
from simulator.scaling.base import Autoscaler, Observation, to_total
from simulator.scaling.gauges import gauge, ttft_s

Positive = Annotated[float, Meta(gt=0, le=1e12)]
Name = Literal["waiting", "running", "kv_cache", "in_flight", "queued", "requests", "ttft"]


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One metric and its target, by one of value and average_value."""

    metric: Annotated[Name, Meta(description=(
        "waiting, running: requests of a replica; kv_cache: KV blocks in use / KV blocks of a replica; in_flight: "
        "requests sent to a replica that have not left; queued: requests that wait at the gateway; requests: queued "
        "and in flight; ttft: time to first token in seconds"))]
    value: Annotated[Positive | None, Meta(extra={"unit": "of the metric"}, description=(
        "target of the metric, of replicas of its mean: replicas = ceil(serving replicas x metric / value); this or "
        "`average_value`"))] = None
    average_value: Annotated[Positive | None, Meta(extra={"unit": "of the metric"}, description=(
        "target for each replica: replicas = ceil(sum over replicas / average_value); this or `value`"))] = None
    quantile: Annotated[Annotated[float, Meta(gt=0, le=1)] | None, Meta(extra={"unit": "ratio"}, description=(
        "quantile of ttft, by the buckets of vLLM's histogram; default: the mean"))] = None

    def __post_init__(self):
        if (self.value is None) == (self.average_value is None):
            raise ValueError("give value or average_value, one of them")
        if self.metric == "ttft" and self.value is None:
            raise ValueError('average_value: with metric = "ttft" give value')
        if self.metric != "ttft" and self.quantile is not None:
            raise ValueError('quantile goes with metric = "ttft"')


class HpaParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Metrics with their targets."""

    targets: Annotated[Annotated[tuple[Target, ...], Meta(min_length=1)], Meta(description=(
        "metrics; the one that asks for most replicas counts"))] = (Target(metric="waiting", average_value=5.0),)
    tolerance: Annotated[float, Meta(ge=0, le=1, description=(
        "a metric within this distance from its target asks for no change, as a fraction of the target"))] = 0.1


class Hpa(Autoscaler):
    """Replicas in proportion to metrics over their targets.

    The largest number over all metrics counts. If a metric is missing, the number does not fall. Replicas that start
    are part of the present number; for `value` the ratio is multiplied with the serving ones alone. Without a serving
    replica only the metrics queued and requests are there, so that no other leads on from zero replicas.
    """

    Parameters = HpaParameters
    stabilization = "extreme"
    windows_s = (0.0, 300.0)
    rates = Rates()

    def __init__(self, parameters):
        super().__init__(parameters)
        self.wants_ttft = any(target.metric == "ttft" for target in parameters.targets)

    def decide(self, observation):
        """See Autoscaler."""
        found = [self._recommended(observation, target) for target in self.parameters.targets]
        known = [each for each in found if each is not None]
        if not known:
            return {}
        replicas = max(known)
        if len(known) < len(found):
            replicas = max(replicas, observation.replicas)
        return to_total(observation, replicas)

    def _recommended(self, observation, target):
        """Return the number of replicas for one metric; None: the metric is missing."""
        measured = measure(observation, target)
        if measured is None:
            return None
        current = observation.replicas
        if target.value is not None:
            ratio, factor = measured / target.value, observation.serving if current else 1
        else:
            ratio, factor = measured / (target.average_value * max(current, 1)), max(current, 1)
        if current and abs(ratio - 1) <= self.parameters.tolerance:
            return current
        return math.ceil(measured / target.average_value if target.value is None else ratio * factor)


def measure(observation: Observation, target: Target) -> float | None:
    """Return a metric, for `value` the mean over replicas, else the sum.

    None: it is missing.
    """
    if target.metric == "ttft":
        return ttft_s(observation, target.quantile)
    if target.metric == "queued":
        return float(observation.queued)
    if target.metric == "requests" and observation.serving == 0:
        return float(observation.queued)
    values = gauge(observation, "in_flight" if target.metric == "requests" else target.metric)
    if not len(values):
        return None
    total = float(values.sum()) + (observation.queued if target.metric == "requests" else 0)
    return total if target.value is None else total / len(values)
