"""Schema of [autoscaling]: when replicas start and stop."""
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

if TYPE_CHECKING:          # NumPy would be half of the time that reading an experiment takes
    import numpy as np

Seconds = Annotated[float, Meta(ge=0, le=1e6)]
Count = Annotated[int, Meta(ge=1, le=2**20)]


class Delay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A duration, each time drawn anew."""

    mean_s: Annotated[Seconds, Meta(description="mean")] = 0.0
    stddev_s: Annotated[Seconds, Meta(description="standard deviation, of normal")] = 0.0
    law: Annotated[Literal["constant", "normal", "exponential"], Meta(description=(
        "distribution of the duration; a draw of normal below 0 counts as 0"))] = "constant"

    def draw_ns(self, generator: "np.random.Generator") -> int:
        """Draw one duration."""
        if self.law == "normal":
            return round(max(generator.normal(self.mean_s, self.stddev_s), 0.0) * 1e9)
        return round(self.mean_s * (generator.standard_exponential() if self.law == "exponential" else 1.0) * 1e9)


class Autoscaling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When replicas start and stop, [autoscaling], with the keys of the policy.

    A new replica is provisioned, loads the model and warms up before it serves; one to be removed gets no new requests
    and finishes its requests. Source of windows and delays: BLIS (inference-sim, sim/cluster/autoscaler.go).
    """

    policy: Annotated[str, Meta(description="policy that decides the number of replicas")]
    interval_s: Annotated[float, Meta(ge=1e-3, le=1e6, description=(
        "time between two decisions; the first is made after one interval"))] = 15.0
    min_replicas: Annotated[int, Meta(ge=0, le=2**20, description=(
        "replicas of each pool, at least; without any replica only a gateway queue can request the first"))] = 1
    max_replicas: Annotated[Count | None, Meta(description=(
        "replicas of each pool, at most, unless the pool sets its own limit; default: its replicas at time 0"))] = None
    scale_up_stabilization_window_s: Annotated[Seconds, Meta(description=(
        "a model scales up after the policy asked for more replicas for this long without a break"))] = 0.0
    scale_down_stabilization_window_s: Annotated[Seconds, Meta(description=(
        "a model scales down after the policy asked for fewer replicas for this long without a break"))] = 0.0
    drains: Annotated[Literal["newest", "oldest", "least_loaded"], Meta(description=(
        "replica removed first: the one with the highest number, the lowest number, or the fewest "
        "requests"))] = "newest"
    drain: Annotated[Literal["finish", "migrate"], Meta(description=(
        "requests of a replica that is removed: finish: it finishes them; migrate: it moves them as "
        "[cluster.rescheduling] says, and finishes those that stay"))] = "finish"
    actuation_delay: Annotated[Delay, Meta(description="delay from a decision to its effect")]
    provisioning_delay: Annotated[Delay, Meta(description="delay until a machine is there")]
    loading_delay: Annotated[Delay, Meta(description="delay from then until the model is loaded")]
    warm_up_delay: Annotated[Delay, Meta(description="delay from then until the replica serves")]
    parameters: Annotated[Any, Meta(extra={"kind": "autoscaler"})]
