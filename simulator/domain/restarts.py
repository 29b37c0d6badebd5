"""Schema of [[restarts]]: rolling restarts of replicas."""
import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.domain.autoscaling import Count, Delay
from simulator.domain.failures import Failure, Seconds

OfUpdate = Annotated[int, Meta(ge=0, le=2**20, extra={"unit": "replicas"})]


class Restart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rolling restart, one of [[restarts]].

    Replicas restart in order of their number, a few at a time. Each gets no new requests, finishes those that it has,
    loads the model and warms up, with empty caches; then the next one begins. A replica that is off, starting or
    draining at its turn is left out. Source: Kubernetes 1.35, Deployment, strategy RollingUpdate with maxSurge = 0:
    at_once is maxUnavailable, and grace_s terminationGracePeriodSeconds of the pod.

    With `to` the restart is a rolling update: each replica of `pool` is drained and goes, and replicas of the pool
    `to`, which has none before, take their place, with the version and the settings of that pool. Source: Kubernetes
    1.35, pkg/controller/deployment/rolling.go, except that a replica which drains counts towards max_surge: it has its
    accelerators until it has gone.
    """

    at_s: Annotated[Seconds, Meta(description="instant at which the first replicas begin to drain")]
    at_once: Annotated[Count, Meta(extra={"unit": "replicas"}, description=(
        "replicas that are away at the same time, at most"))] = 1
    pool: Annotated[str | None, Meta(description="the replicas of this pool only; default: of all pools")] = None
    to: Annotated[str | None, Meta(description=(
        "pool with the new version, of as many replicas as `pool`; default: replicas come back as they were"))] = None
    max_surge: Annotated[OfUpdate | None, Meta(description=(
        "with `to`: replicas of both pools beyond those of `pool`, at most; default: a quarter of them, rounded "
        "up"))] = None
    max_unavailable: Annotated[OfUpdate | None, Meta(description=(
        "with `to`: replicas fewer than those of `pool` that serve, at most; default: a quarter of them, rounded down, "
        "1 if max_surge is 0"))] = None
    drain: Annotated[Literal["finish", "migrate"], Meta(description=(
        "requests of a replica that restarts: finish: it finishes them; migrate: it moves them as "
        "[cluster.rescheduling] says, and finishes those that stay"))] = "finish"
    grace_s: Annotated[float, Meta(ge=0, extra={"inf": True}, description=(
        "longest time to drain; then the replica stops with the requests that are left"))] = math.inf
    on_stop: Annotated[Literal["retry", "restart", "lost"] | None, Meta(description=(
        "requests that are left at the end of grace_s. retry: they go elsewhere, and prompt and tokens so far are "
        "computed again; restart: they begin again, streamed tokens are void; lost: they are dropped; default: "
        "retry"))] = None
    loading_delay: Annotated[Delay | None, Meta(description=(
        "delay until the model is loaded; default: that of a start by [autoscaling], with its weights"))] = None
    warm_up_delay: Annotated[Delay | None, Meta(description=(
        "delay from then until the replica serves; default: none with loading_delay, else that of "
        "[autoscaling]"))] = None

    def __post_init__(self):
        if self.on_stop is not None and math.isinf(self.grace_s):
            raise ValueError("on_stop takes grace_s: without it a replica finishes all its requests")
        if self.warm_up_delay is not None and self.loading_delay is None:
            raise ValueError("warm_up_delay takes loading_delay")

        if self.to is None and (self.max_surge, self.max_unavailable) != (None, None):
            raise ValueError("max_surge and max_unavailable take `to`; without it at_once says how many are away")
        if self.to is not None:
            self._check_update()

    def _check_update(self):
        if self.pool in (None, self.to):
            raise ValueError("to: give the pool that it replaces as `pool`, another one")
        if self.at_once != 1:
            raise ValueError("at_once: leave it out with `to`: max_surge and max_unavailable say how many change")
        if self.drain != "finish":
            raise ValueError(f'drain: expected "finish" with `to`, found "{self.drain}"')
        if (self.max_surge, self.max_unavailable) == (0, 0):
            raise ValueError("max_surge = 0 with max_unavailable = 0: no replica could ever change")

    def bounds(self, replicas: int) -> tuple[int, int]:
        """Return the most replicas beyond `replicas`, and by how many fewer may serve."""
        surge = -(-replicas // 4) if self.max_surge is None else self.max_surge
        fewer = replicas // 4 if self.max_unavailable is None else self.max_unavailable
        return surge, max(fewer, 1) if surge == 0 else fewer

    def stop(self) -> Failure:
        """Return the stop at the end of grace_s as a failure, with the requests' fate."""
        if self.on_stop == "lost":
            return Failure(kind="stop", at_s=self.at_s, on_failure="lost")
        return Failure(kind="stop", at_s=self.at_s, on_failure=self.on_stop or "retry", max_retries=2**31 - 1)
