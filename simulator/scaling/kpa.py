"""`kpa`: Knative's autoscaler, by the concurrency over a long and a short window.

Source: knative/serving@00a4a55c, pkg/autoscaler/scaling/autoscaler.go; defaults of Knative's config-autoscaler.
"""
import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.scaling.base import Autoscaler, Observation, to_total

Rate = Annotated[float, Meta(gt=1, le=1e6)]


class KpaParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Target of the concurrency, windows and bounds of a step."""

    target_concurrency: Annotated[float, Meta(gt=0, le=1e9, extra={"unit": "requests"}, description=(
        "requests in flight that a replica can take"))] = 100.0
    target_utilization: Annotated[float, Meta(gt=0, le=1, extra={"unit": "ratio"}, description=(
        "share of target_concurrency that is the target"))] = 0.7
    stable_window_s: Annotated[float, Meta(ge=1e-3, le=3600, description=(
        "window over which the mean concurrency sets the number of replicas"))] = 60.0
    panic_window_frac: Annotated[float, Meta(gt=0, le=1, extra={"unit": "ratio"}, description=(
        "window that leads to panic, as a share of stable_window_s"))] = 0.1
    panic_threshold: Annotated[Rate, Meta(extra={"unit": "ratio"}, description=(
        "panic begins where panic_by reaches it, and ends a stable window after it last did"))] = 2.0
    panic_by: Annotated[Literal["replicas", "load"], Meta(description=(
        "replicas: replicas for the panic window / serving replicas (Knative); load: concurrency of the panic window / "
        "that of the stable window, above the threshold (AIBrix)"))] = "replicas"
    max_scale_up_rate: Annotated[Rate, Meta(extra={"unit": "ratio"}, description=(
        "new number / serving replicas, at most; 2 in AIBrix"))] = 1000.0
    max_scale_down_rate: Annotated[Rate, Meta(extra={"unit": "ratio"}, description=(
        "serving replicas / new number, at most"))] = 2.0
    zero_grace_s: Annotated[float, Meta(ge=0, le=1e6, description=(
        "with min_replicas = 0, time that the last replica stays after a stable window without a request"))] = 30.0


class Kpa(Autoscaler):
    """Replicas = ceil(mean concurrency / target), in panic the largest so far.

    Concurrency is the number of requests at replicas that serve and at the gateway, sampled at each decision or, with
    [autoscaling.metrics], at each scrape, where Knative samples each second. A model with several replicas begins in
    panic, as Knative's does.
    """

    Parameters = KpaParameters
    interval_s = 2.0
    stabilization = "extreme"
    note = "autoscaler kpa: concurrency is sampled at decisions or scrapes, where Knative samples each second"

    def __init__(self, parameters):
        super().__init__(parameters)
        self.keeps_s = parameters.stable_window_s
        self._panic_ns: int | None = None       # last time at which the panic threshold was reached; None: no panic
        self._most = 0                          # replicas recommended in this panic
        self._has_begun = False
        self._idle_since_ns: int | None = None

    def decide(self, observation):
        """See Autoscaler."""
        if not self._has_begun:
            self._has_begun, self._most = True, observation.serving
            self._panic_ns = observation.now_ns if observation.serving > 1 else None
        stable, panic = (mean_requests(observation, self.parameters.stable_window_s * share)
                         for share in (1.0, self.parameters.panic_window_frac))
        if stable is None:
            return {}
        panic = stable if panic is None else panic      # no sample in the short window
        return to_total(observation, self._with_grace(self.desired(observation, stable, panic), observation.now_ns))

    def desired(self, observation: Observation, stable: float, panic: float) -> int:
        """Return the number of replicas for the mean concurrency of both windows."""
        keys, now_ns = self.parameters, observation.now_ns
        ready = max(observation.serving, 1)
        target = keys.target_concurrency * keys.target_utilization
        for_panic = math.ceil(panic / target)
        lowest, highest = math.floor(ready / keys.max_scale_down_rate), math.ceil(ready * keys.max_scale_up_rate)
        of_stable, of_panic = (min(max(each, lowest), highest) for each in (math.ceil(stable / target), for_panic))
        is_over = (for_panic / ready >= keys.panic_threshold if keys.panic_by == "replicas"
                   else panic > keys.panic_threshold * stable)
        if is_over:
            self._panic_ns = now_ns
        elif self._panic_ns is not None and now_ns - self._panic_ns > round(keys.stable_window_s * 1e9):
            self._panic_ns, self._most = None, 0
        if self._panic_ns is None:
            return of_stable
        self._most = max(self._most, of_stable, of_panic)
        return self._most

    def _with_grace(self, replicas, now_ns):
        """Return the number of replicas, 1 in place of 0 until the grace is over."""
        if replicas > 0:
            self._idle_since_ns = None
            return replicas
        if self._idle_since_ns is None:
            self._idle_since_ns = now_ns
        return int(now_ns - self._idle_since_ns < round(self.parameters.zero_grace_s * 1e9))


def mean_requests(observation: Observation, window_s: float) -> float | None:
    """Return the mean number of requests over the last window; None: no sample.

    The window is open at its begin.
    """
    begin_ns = observation.now_ns - round(window_s * 1e9)
    found = [sample.requests for sample in observation.samples if sample.time_ns > begin_ns]
    return math.fsum(found) / len(found) if found else None
