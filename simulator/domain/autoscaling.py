"""Schema of [autoscaling]: when replicas start and stop."""
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

if TYPE_CHECKING:          # NumPy would be half of the time that reading an experiment takes
    import numpy as np

Seconds = Annotated[float, Meta(ge=0, le=1e6)]
Count = Annotated[int, Meta(ge=1, le=2**20)]
Gpus = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Select = Literal["max", "min", "disabled"]


class Delay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A duration, each time drawn anew."""

    mean_s: Annotated[Seconds, Meta(description="mean")] = 0.0
    stddev_s: Annotated[Seconds, Meta(description="standard deviation, of normal")] = 0.0
    law: Annotated[Literal["constant", "normal", "exponential"], Meta(description=(
        "distribution of the duration; a draw of normal below 0 counts as 0"))] = "constant"

    def __post_init__(self):
        if self.stddev_s and self.law != "normal":
            raise ValueError('stddev_s has an effect only with law = "normal": leave it out')
        if self.law != "constant" and not (self.mean_s or self.stddev_s):
            raise ValueError("law has no effect on a mean of 0 s: give mean_s")

    def draw_ns(self, generator: "np.random.Generator") -> int:
        """Draw one duration."""
        if self.law == "normal":
            return round(max(generator.normal(self.mean_s, self.stddev_s), 0.0) * 1e9)
        return round(self.mean_s * (generator.standard_exponential() if self.law == "exponential" else 1.0) * 1e9)


class Rate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bound on a change in a period, by one of percent and replicas."""

    percent: Annotated[Annotated[int, Meta(ge=1, le=10**6)] | None, Meta(extra={"unit": "%"}, description=(
        "share of the replicas at the begin of the period; this or `replicas`"))] = None
    replicas: Annotated[Count | None, Meta(description="replicas; this or `percent`")] = None
    period_s: Annotated[float, Meta(ge=1e-3, le=1800, description="duration over which changes are added up")]

    def __post_init__(self):
        if (self.percent is None) == (self.replicas is None):
            raise ValueError("give percent or replicas, one of them")


class Rates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fast the number of replicas of a model changes, [autoscaling.rates].

    Source: Kubernetes 1.35, API text of autoscaling/v2, HPAScalingRules; the sums of
    pkg/controller/podautoscaler/horizontal.go, calculateScaleUpLimitWithScalingRules.
    """

    up: Annotated[Annotated[tuple[Rate, ...], Meta(min_length=1)], Meta(description=(
        "bounds on growth"))] = (Rate(percent=100, period_s=15.0), Rate(replicas=4, period_s=15.0))
    down: Annotated[Annotated[tuple[Rate, ...], Meta(min_length=1)], Meta(description=(
        "bounds on shrinking"))] = (Rate(percent=100, period_s=15.0),)
    select: Annotated[Select, Meta(description=(
        "bound that counts: max: the one that allows most; min: the one that allows least; disabled: the number "
        "does not change"))] = "max"
    select_down: Annotated[Select | None, Meta(description="as select, for shrinking; default: select")] = None


class Metrics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scraping of the metrics that the policy sees, [autoscaling.metrics].

    Every policy then sees the last scrape, or an aggregate of scrapes, instead of the replicas at the decision.
    Source: Prometheus, "Querying basics": an instant vector takes the last sample of 5 minutes, avg_over_time and
    max_over_time those of a range that is open at its begin.
    """

    scrape_interval_s: Annotated[float, Meta(ge=1e-3, le=1e6, description="time between two scrapes")] = 15.0
    offset: Annotated[Literal["random", "none"], Meta(description=(
        "time of the first scrape: random: drawn between 0 and the interval; none: after one interval"))] = "random"
    window_s: Annotated[float, Meta(gt=0, le=1e6, description=(
        "range over which mean and max are taken, and times to first token are counted"))] = 60.0
    aggregate: Annotated[Literal["last", "mean", "max"], Meta(description=(
        "value of a metric of a replica: its last scrape, or mean or maximum of the scrapes in the window"))] = "last"
    staleness_s: Annotated[float, Meta(gt=0, le=1e6, description=(
        "age above which the last scrape of a replica is disregarded"))] = 300.0


class Zero(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scaling to zero replicas and back, beside the policy, [autoscaling.zero].

    Activity is the number of requests that wait or run, plus requests refused since the last poll. The policy acts
    only while there are replicas, and leaves at least one. Source: KEDA, ScaledObject specification, pollingInterval,
    cooldownPeriod and activation thresholds.
    """

    poll_s: Annotated[float, Meta(ge=1e-3, le=1e6, description="time between two looks at the activity")] = 30.0
    cooldown_s: Annotated[Seconds, Meta(description=(
        "time since the model was last active after which all replicas are removed"))] = 300.0
    activation: Annotated[int, Meta(ge=0, le=2**31 - 1, extra={"unit": "requests"}, description=(
        "a model is active above this activity"))] = 0


class SharedBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One budget for the autoscalers of all models, [autoscaling.shared_budget].

    Each autoscaler asks for its changes, which are granted or denied as a whole, in order of the pools. A change
    beyond a bound is granted together with opposite changes of others that were asked for and are not yet carried out.
    Source: Dynamo's global planner, see engine/operations/shared_budget.py.
    """

    min_gpus: Annotated[Gpus | None, Meta(description=(
        "accelerators of all replicas, at least; after changes in both directions one replica may be missing; default: "
        "no bound"))] = None
    max_gpus: Annotated[Gpus | None, Meta(description=(
        "accelerators of all replicas, at most; default: no bound"))] = None
    intent_ttl_s: Annotated[float, Meta(gt=0, le=1e6, description=(
        "time for which a change that was asked for may be granted together with another one"))] = 360.0

    def __post_init__(self):
        if self.min_gpus is None and self.max_gpus is None:
            raise ValueError("give min_gpus, max_gpus or both")
        if None not in (self.min_gpus, self.max_gpus) and self.min_gpus > self.max_gpus:
            raise ValueError(f"min_gpus: expected at most max_gpus = {self.max_gpus}, found {self.min_gpus}")


class Weights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Weights that a new replica reads from storage, [autoscaling.weights].

    Reading them takes size / bandwidth.
    """

    gb_per_s: Annotated[float, Meta(gt=0, le=1e6, description="bandwidth of the storage, for a replica")]
    warm_gb_per_s: Annotated[Annotated[float, Meta(gt=0, le=1e6)] | None, Meta(description=(
        "bandwidth at a node that had a replica of the pool before, such as that of its page cache; default: "
        "gb_per_s"))] = None
    size_gb: Annotated[Annotated[float, Meta(gt=0, le=1e6)] | None, Meta(extra={"unit": "GB"}, description=(
        "size of the weights; default: by [model]"))] = None


class Autoscaling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When replicas start and stop, [autoscaling], with the keys of the policy.

    A new replica is provisioned, loads the model and warms up before it serves; one to be removed gets no new requests
    and finishes its requests. Source of windows and delays: BLIS (inference-sim, sim/cluster/autoscaler.go).
    """

    policy: Annotated[str, Meta(description="policy that decides the number of replicas")]
    interval_s: Annotated[Annotated[float, Meta(ge=1e-3, le=1e6)] | None, Meta(description=(
        "time between two decisions; the first is made after one interval; default: 15, 2 for kpa, 10 for apa"
    ))] = None
    min_replicas: Annotated[int, Meta(ge=0, le=2**20, description=(
        "replicas of each pool, at least; without any replica a gateway queue keeps requests and can request the "
        "first, and without such a queue requests are refused"))] = 1
    max_replicas: Annotated[Count | None, Meta(description=(
        "replicas of each pool, at most, unless the pool sets its own limit; default: its replicas at time 0"))] = None
    stabilization: Annotated[Literal["unbroken", "extreme"] | None, Meta(description=(
        "stabilization windows: unbroken: a model scales after the policy asked for it throughout the window (BLIS); "
        "extreme: it grows to the lowest number recommended within the window at most, and shrinks to the highest at "
        "most (Kubernetes); default: unbroken, extreme for hpa, kpa and apa"))] = None
    scale_up_stabilization_window_s: Annotated[Seconds | None, Meta(description=(
        "window before a model grows; default: 0"))] = None
    scale_down_stabilization_window_s: Annotated[Seconds | None, Meta(description=(
        "window before a model shrinks; default: 0, 300 for hpa and apa"))] = None
    rates: Annotated[Rates | None, Meta(description=(
        "limits on the speed of changes; default: none, those of Kubernetes for hpa"))] = None
    metrics: Annotated[Metrics | None, Meta(description=(
        "scraping of metrics; absent: the policy sees the replicas at its decision"))] = None
    zero: Annotated[Zero | None, Meta(description="scaling to zero and back; absent: min_replicas holds")] = None
    shared_budget: Annotated[SharedBudget | None, Meta(description=(
        "budget of accelerators that the autoscalers of all models share; absent: each decides by itself"))] = None
    drains: Annotated[Literal["newest", "oldest", "least_loaded"], Meta(description=(
        "replica removed first: the one with the highest number, the lowest number, or the fewest "
        "requests"))] = "newest"
    drain: Annotated[Literal["finish", "migrate"], Meta(description=(
        "requests of a replica that is removed: finish: it finishes them; migrate: it moves them as "
        "[cluster.rescheduling] says, and finishes those that stay"))] = "finish"
    actuation_delay: Annotated[Delay, Meta(description="delay from a decision to its effect")]
    provisioning_delay: Annotated[Delay, Meta(description="delay until a machine is there")]
    loading_delay: Annotated[Delay, Meta(description="delay from then until the model is loaded")]
    warm_up_delay: Annotated[Delay, Meta(description="delay from then until the replica is healthy")]
    image_pull_delay: Annotated[Delay, Meta(description=(
        "delay from provisioning until the container image is there; none at a node that had a replica before"
    ))] = Delay()
    weights: Annotated[Weights | None, Meta(description=(
        "weights read from storage; the duration is added to loading_delay"))] = None
    ready_probe_s: Annotated[Seconds, Meta(description=(
        "time between two readiness probes, counted from the begin of loading; a replica serves from the first "
        "probe after its warm-up on; 0: at once"))] = 0.0
    parameters: Annotated[Any, Meta(extra={"kind": "autoscaler"})]
