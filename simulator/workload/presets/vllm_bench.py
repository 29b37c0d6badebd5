"""Arrivals of `vllm bench serve` for any dataset: by its own options, or by [workload.arrival].

Source: vllm-project/vllm, vllm/benchmarks/serve.py, commit 009e6d4a.
"""
import math
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from simulator.domain.load import Count, Share, Warmup
from simulator.workload.drawing.arrivals import Constant, Gamma, RateAndVariationParameters
from simulator.workload.drawing.ramps import ramped_times_s
from simulator.workload.presets.base import Preset, PresetParameters, only

PerSecond = Annotated[float, Meta(ge=1e-12, le=1e9, extra={"unit": "requests/s"})]


class VllmBenchParameters(PresetParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `vllm bench serve`, by their names.

    Without options of the load, [workload.arrival] and [workload.load] are read.
    """

    seed: Annotated[int, Meta(ge=0, le=2**32 - 1, description=(
        "the tool's seed, which does not change with the experiment's"))] = 0
    request_rate: Annotated[Annotated[float, Meta(gt=0)] | None, Meta(
        extra={"inf": True, "unit": "requests/s"}, description=(
            "mean, and that of the last request exactly; default: inf, all at once, with max_concurrency"))] = None
    burstiness: Annotated[float, Meta(gt=0, extra={"inf": True, "unit": "shape"}, description=(
        "shape of the gaps, 1 / cv**2; inf: equal gaps"))] = 1.0
    max_concurrency: Annotated[Count | None, Meta(description="requests at once, in order")] = None
    ramp_up_strategy: Annotated[Literal["linear", "exponential"] | None, Meta(description=(
        "instead of request_rate: the rate rises from request to request"))] = None
    ramp_up_start_rps: Annotated[PerSecond | None, Meta(description="of a ramp: rate at the first request")] = None
    ramp_up_end_rps: Annotated[PerSecond | None, Meta(description="of a ramp: rate at the last request")] = None
    num_warmups: Annotated[Share, Meta(description="copies of the first request that are sent before")] = 0

    def __post_init__(self):
        ends = (self.ramp_up_start_rps, self.ramp_up_end_rps)
        if self.ramp_up_strategy is None:
            if ends != (None, None):
                raise ValueError("ramp_up_start_rps and ramp_up_end_rps take ramp_up_strategy")
            if self.burstiness != 1.0 and (self.request_rate is None or math.isinf(self.request_rate)):
                raise ValueError("burstiness takes a request_rate that is not inf, or ramp_up_strategy")
        elif None in ends or self.request_rate is not None or ends[0] > ends[1]:
            raise ValueError(f'ramp_up_strategy = "{self.ramp_up_strategy}" takes ramp_up_start_rps and '
                             "ramp_up_end_rps, which is not below, and no request_rate")

    @property
    def says_when(self):
        """Options of the load, which replace [workload.arrival]."""
        keys = ("request_rate", "ramp_up_strategy", "max_concurrency")
        said = [key for key in keys if getattr(self, key) is not None]
        return f"has {said[0]}, which says when requests come" if said else None

    @property
    def requests_per_s(self):
        """The rate."""
        return None if self.request_rate is None or math.isinf(self.request_rate) else self.request_rate

    @property
    def is_loop(self) -> bool:
        """Whether all requests are due at once, and slots release them."""
        return self.max_concurrency is not None and self.ramp_up_strategy is None and self.requests_per_s is None

    def check(self, bounds):
        """Refuse arrivals of an unknown number of requests."""
        if self.says_when and bounds.num_requests is None:
            raise ValueError("num_requests: missing; the tool draws all its requests together")

    def fill_load(self, given, bounds):
        """Return a semaphore of `max_concurrency`, if the tool's options set the load."""
        if not self.says_when:
            return super().fill_load(given, bounds)
        if self.is_loop:
            return only(given, mode="concurrency", concurrency=self.max_concurrency)
        if self.max_concurrency is not None:
            return only(given, max_in_flight=self.max_concurrency)
        return only(given, client_delay_s=given.client_delay_s)

    def fill_warmup(self, given, bounds):
        """Return copies of the first request."""
        return Warmup(copies_of_first=self.num_warmups) if self.num_warmups else given


class VllmBench(Preset):
    """A dataset of `vllm bench serve`."""

    def __init__(self, parameters: VllmBenchParameters):
        self._parameters = parameters

    def gaps(self, streams):
        """Return NumPy's global generator as seeded; some datasets advance the tool's."""
        return np.random.RandomState(self._parameters.seed)

    def sent_of(self, count: int) -> int:
        """Return how many of `count` requests the tool sends."""
        return count

    def arrivals_s(self, streams, bounds):
        """Return the sums of gaps, which end at N / rate if there is no ramp."""
        count, ends_s = self.sent_of(bounds.num_requests), bounds.duration_s or math.inf
        times_s = self._times_s(streams, count)
        times_s = np.append(times_s, np.repeat(times_s[-1:], bounds.num_requests - count))      # not sent in the end
        return times_s[:np.searchsorted(times_s, ends_s)]

    def _times_s(self, streams, count: int) -> np.ndarray:
        given = self._parameters
        if given.ramp_up_strategy is None and given.requests_per_s is None:
            return np.zeros(count)
        keys = {"rate_per_s": given.request_rate, "rescale_to_rate": True} if given.ramp_up_strategy is None else {
            "ramp": given.ramp_up_strategy, "start_rate_per_s": given.ramp_up_start_rps,
            "end_rate_per_s": given.ramp_up_end_rps}
        cv = given.burstiness ** -0.5
        process = (Gamma if cv else Constant)(RateAndVariationParameters(rate_per_s=1.0, cv=cv))
        return ramped_times_s(process, RateAndVariationParameters(**keys), self.gaps(streams), count, math.inf)
