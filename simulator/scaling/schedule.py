"""`schedule`: changes of the number of replicas at set times, as an operator or a cron scaler orders them."""
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.errors import did_you_mean
from simulator.scaling.base import Autoscaler

Number = Annotated[int, Meta(ge=0, le=2**20, extra={"unit": "replicas"})]


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An order to start or remove replicas, one of [[autoscaling.changes]]."""

    at_s: Annotated[float, Meta(ge=0, le=9e9, description="instant of the order")]
    pool: Annotated[str | None, Meta(description="pool that grows or shrinks; default: each pool")] = None
    replicas: Annotated[Number | None, Meta(description=(
        "number of replicas of the pool, those that start included; the order takes effect after actuation_delay; this "
        "or `remove`"))] = None
    remove: Annotated[Annotated[int, Meta(ge=0, le=2**31 - 1)] | None, Meta(extra={"unit": "replica"}, description=(
        "number of a replica in the cluster that is drained and goes, at once; this or `replicas`"))] = None

    def __post_init__(self):
        if (self.replicas is None) == (self.remove is None):
            raise ValueError("give replicas or remove, one of them")
        if self.remove is not None and self.pool is not None:
            raise ValueError("remove takes no pool: replicas are numbered in the cluster")


class ScheduleParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The orders."""

    changes: Annotated[tuple[Change, ...], Meta(description=(
        "orders to start or remove replicas, within min_replicas and max_replicas"))] = ()


class Schedule(Autoscaler):
    """Ordered changes alone: Kubernetes' scale subresource, KEDA's cron scaler.

    The engine carries the orders out at their instants, not at decisions. A start that was ordered is not taken back.
    """

    Parameters = ScheduleParameters
    unread = ("stabilization", "scale_up_stabilization_window_s", "scale_down_stabilization_window_s",
              "rates", "metrics", "shared_budget")
    note = "autoscaler schedule: a start that was ordered is not taken back by a later order"

    def __init__(self, parameters):
        super().__init__(parameters)
        self.orders = parameters.changes

    @classmethod
    def faults(cls, parameters, interval_s, pools):
        """See Autoscaler."""
        names = [pool.name for pool in pools]
        for i, change in enumerate(parameters.changes):
            if change.pool is not None and change.pool not in names:
                yield f"changes[{i}].pool", f'there is no pool "{change.pool}"{did_you_mean(change.pool, names)}'

    def decide(self, observation):
        """See Autoscaler."""
        return {}
