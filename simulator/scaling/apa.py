"""`apa`: AIBrix's autoscaler, in proportion to the use of a replica with bounds on each step.

Source: vllm-project/aibrix@e3e10f9e, pkg/controller/podautoscaler/algorithm/apa.go.
"""
import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.scaling.base import Autoscaler, spread, to_total
from simulator.scaling.gauges import gauge

Rate = Annotated[float, Meta(gt=1, le=1e6)]
Tolerance = Annotated[float, Meta(ge=0, le=1)]


class ApaParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Metric, its target, and the bounds of a step."""

    metric: Annotated[Literal["kv_cache", "waiting", "running", "in_flight"], Meta(description=(
        "mean over replicas of: kv_cache: KV blocks in use / KV blocks; waiting, running: requests there; in_flight: "
        "requests sent there that have not left"))] = "kv_cache"
    target: Annotated[float, Meta(gt=0, le=1e6, extra={"unit": "of the metric"}, description=(
        "target of the metric"))] = 0.5
    up_tolerance: Annotated[Tolerance, Meta(extra={"unit": "ratio"}, description=(
        "growth only above this distance from the target, as a fraction of it"))] = 0.1
    down_tolerance: Annotated[Tolerance, Meta(extra={"unit": "ratio"}, description=(
        "shrinking only below this distance from the target, as a fraction of it"))] = 0.1
    max_scale_up_rate: Annotated[Rate, Meta(extra={"unit": "ratio"}, description=(
        "new number / present number, at most; the product is rounded up"))] = 2.0
    max_scale_down_rate: Annotated[Rate, Meta(extra={"unit": "ratio"}, description=(
        "present number / new number, at most; the quotient is rounded down"))] = 2.0


class Apa(Autoscaler):
    """Replicas = ceil(n x use / target) where that is out of its tolerance.

    A step is bounded by the rates. n counts replicas that start, too. Without any, a request at the gateway calls for
    the first.
    """

    Parameters = ApaParameters
    interval_s = 10.0
    stabilization = "extreme"
    windows_s = (0.0, 300.0)

    def decide(self, observation):
        """See Autoscaler."""
        if observation.replicas == 0:
            return spread(observation, int(observation.queued > 0))
        values = gauge(observation, self.parameters.metric)
        if not len(values):
            return {}
        return to_total(observation, self.desired(observation.replicas, float(values.mean())))

    def desired(self, replicas: int, use: float) -> int:
        """Return the number of replicas for the mean use of one."""
        keys = self.parameters
        ratio = use / keys.target
        if ratio > 1 + keys.up_tolerance:
            return min(math.ceil(replicas * ratio), math.ceil(replicas * keys.max_scale_up_rate))
        if ratio < 1 - keys.down_tolerance:
            return max(math.ceil(replicas * ratio), math.floor(replicas / keys.max_scale_down_rate))
        return replicas
