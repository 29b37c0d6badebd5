"""`queue`: as many replicas as keep the waiting requests of each at a target."""
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.scaling.base import Autoscaler, in_proportion


class QueueParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Target of the waiting requests."""

    target_waiting: Annotated[float, Meta(gt=0, le=1e6, description=(
        "target of waiting requests per replica, in its queue or at the gateway"))] = 5.0
    tolerance: Annotated[float, Meta(ge=0, le=1, description=(
        "no change within this distance from the target, as a fraction of it"))] = 0.1


class Queue(Autoscaler):
    """Replicas in proportion to the requests that wait; see `in_proportion`."""

    Parameters = QueueParameters

    def decide(self, observation):
        """See Autoscaler."""
        waiting = observation.queued + int(observation.states()["waiting"].sum())
        ratio = waiting / (self.parameters.target_waiting * max(observation.serving, 1))
        return in_proportion(observation, ratio, self.parameters.tolerance)
