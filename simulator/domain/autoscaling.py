"""When replicas come and go: what an experiment says of it."""
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

if TYPE_CHECKING:          # NumPy would be half of the time that reading an experiment takes
    import numpy as np

Seconds = Annotated[float, Meta(ge=0, le=1e6)]
Count = Annotated[int, Meta(ge=1, le=2**20)]


class Delay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long something takes, each time drawn anew."""

    mean_s: Annotated[Seconds, Meta(description="mean")] = 0.0
    stddev_s: Annotated[Seconds, Meta(description="standard deviation, of normal")] = 0.0
    law: Annotated[Literal["constant", "normal", "exponential"], Meta(description=(
        "how it is distributed; what normal draws below 0 is 0"))] = "constant"

    def draw_ns(self, generator: "np.random.Generator") -> int:
        """Draw how long it takes this time."""
        if self.law == "normal":
            return round(max(generator.normal(self.mean_s, self.stddev_s), 0.0) * 1e9)
        return round(self.mean_s * (generator.standard_exponential() if self.law == "exponential" else 1.0) * 1e9)


class Autoscaling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When replicas come and go, [autoscaling], with the keys of the policy.

    A new replica is provisioned, loads the model and warms up before it serves; one that is to go gets no new requests
    and finishes those it has. Source of windows and delays: BLIS (inference-sim, sim/cluster/autoscaler.go).
    """

    policy: Annotated[str, Meta(description="how many replicas there are to be")]
    interval_s: Annotated[float, Meta(ge=1e-3, le=1e6, description=(
        "time between two decisions; the first comes after one"))] = 15.0
    min_replicas: Annotated[int, Meta(ge=0, le=2**20, description=(
        "of each pool; with none left only a gateway queue can call for the first"))] = 1
    max_replicas: Annotated[Count | None, Meta(description=(
        "of each pool that does not say so itself; default: its replicas at time 0"))] = None
    scale_up_stabilization_window_s: Annotated[Seconds, Meta(description=(
        "so long the policy must have wanted more replicas of a model without a break"))] = 0.0
    scale_down_stabilization_window_s: Annotated[Seconds, Meta(description="likewise fewer")] = 0.0
    drains: Annotated[Literal["newest", "oldest", "least_loaded"], Meta(description=(
        "who goes first: by the highest number, the lowest, or the fewest requests"))] = "newest"
    drain: Annotated[Literal["finish", "migrate"], Meta(description=(
        "what a replica that is to go does with its requests; migrate: moves them, as [cluster.rescheduling] says, and "
        "finishes those that stay"))] = "finish"
    actuation_delay: Annotated[Delay, Meta(description="from a decision to its effect")]
    provisioning_delay: Annotated[Delay, Meta(description="until a machine is there")]
    loading_delay: Annotated[Delay, Meta(description="then, until the model is loaded")]
    warm_up_delay: Annotated[Delay, Meta(description="then, until it serves")]
    parameters: Annotated[Any, Meta(extra={"kind": "autoscaler"})]
