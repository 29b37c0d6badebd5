"""Arrival processes, which draw the gaps between arrivals.

A process is built as `Process(parameters)` and has one method, `gaps_s(generator, first, count)`: the gaps in seconds
before requests `first` to `first + count - 1`, counted from 0; the gap before request 0 starts at time 0.
"""
from math import exp, inf, lgamma
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

LEAST = 1e-12                   # one in 31,700 years
Positive = Annotated[float, Meta(ge=LEAST, le=1e9)]
Rate = Annotated[float, Meta(ge=LEAST)]
Variation = Annotated[float, Meta(ge=0.001, le=100, description=(
    "coefficient of variation of the gaps: standard deviation / mean; 1 is poisson, above 1 is burstier"))]


class RateParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arrivals at a mean rate, or at one that rises from request to request."""

    rate_per_s: Annotated[Rate | None, Meta(extra={"inf": True}, description=(
        "mean requests per second; inf: all at once; absent if a ramp or [workload.rate] sets it"))] = None
    ramp: Annotated[Literal["linear", "exponential"] | None, Meta(description=(
        "the rate rises from the first request to the last by equal differences, or by equal factors"))] = None
    start_rate_per_s: Annotated[Positive | None, Meta(description="of a ramp: rate of the first request")] = None
    end_rate_per_s: Annotated[Positive | None, Meta(description="of a ramp: rate of the last request")] = None
    rescale_to_rate: Annotated[bool, Meta(description=(
        "stretch the arrivals so that the last of N comes at N / rate_per_s, as in vllm bench serve"))] = False

    def __post_init__(self):
        ends = (self.start_rate_per_s, self.end_rate_per_s)
        if self.ramp is None:
            if ends != (None, None):
                raise ValueError('start_rate_per_s and end_rate_per_s take ramp = "linear" or "exponential"')
            if self.rescale_to_rate and self.rate_per_s is None:
                raise ValueError("rescale_to_rate needs rate_per_s")
            return
        if None in ends:
            raise ValueError(f'ramp = "{self.ramp}" needs start_rate_per_s and end_rate_per_s')
        if self.start_rate_per_s > self.end_rate_per_s:
            raise ValueError(f"end_rate_per_s {self.end_rate_per_s:g} is below start_rate_per_s "
                             f"{self.start_rate_per_s:g}")
        if self.rate_per_s is not None or self.rescale_to_rate:
            raise ValueError("a ramp goes without rate_per_s and rescale_to_rate")

    def at_unit_rate(self):
        """Return these parameters with gaps of mean 1."""
        return msgspec.structs.replace(
            self, rate_per_s=1.0, ramp=None, start_rate_per_s=None, end_rate_per_s=None, rescale_to_rate=False)


class RateAndVariationParameters(RateParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arrivals at a mean rate, or a rising one, with a chosen burstiness."""

    cv: Variation = 1.0


class BurstParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Batches at a fixed interval, the first at `interval_s`.

    The requests of a batch arrive together.
    """

    size: Annotated[int, Meta(ge=1, le=2**31 - 1, description="requests in a batch")]
    interval_s: Annotated[float, Meta(gt=0, description="from one batch to the next")]


class Constant:
    """`constant`: equal gaps."""

    Parameters = RateParameters

    def __init__(self, parameters):
        self.rate_per_s = parameters.rate_per_s

    def gaps_s(self, generator, first, count):
        return np.full(count, 1 / self.rate_per_s)


class Poisson:
    """`poisson`: independent, exponentially distributed gaps."""

    Parameters = RateParameters

    def __init__(self, parameters):
        self.rate_per_s = parameters.rate_per_s

    def gaps_s(self, generator, first, count):
        return generator.standard_exponential(count) / self.rate_per_s


class Gamma:
    """`gamma`: gaps of mean 1/rate and shape 1/cv**2.

    The shape is called burstiness in `vllm bench serve`.
    """

    Parameters = RateAndVariationParameters

    def __init__(self, parameters):
        self.rate_per_s = parameters.rate_per_s
        self.shape = parameters.cv ** -2

    def gaps_s(self, generator, first, count):
        return generator.standard_gamma(self.shape, count) / (self.shape * self.rate_per_s)


class Weibull:
    """`weibull`: gaps of mean 1/rate; the shape follows from cv."""

    Parameters = RateAndVariationParameters

    def __init__(self, parameters):
        self.rate_per_s = parameters.rate_per_s
        self.shape = weibull_shape(parameters.cv)

    def gaps_s(self, generator, first, count):
        mean = exp(lgamma(1 + 1 / self.shape))
        return generator.weibull(self.shape, count) / (mean * self.rate_per_s)


class Burst:
    """`burst`: batches at a fixed interval."""

    Parameters = BurstParameters

    def __init__(self, parameters):
        self.size = parameters.size
        self.interval_s = parameters.interval_s
        self.rate_per_s = parameters.size / parameters.interval_s

    def gaps_s(self, generator, first, count):
        opens_batch = np.arange(first, first + count) % self.size == 0
        return np.where(opens_batch, self.interval_s, 0.0)


def weibull_shape(cv: float) -> float:
    """Return the shape k of the Weibull distribution with variation `cv`.

    cv**2 = Gamma(1 + 2/k) / Gamma(1 + 1/k)**2 - 1 falls with k; the root is found by bisection to the last bit.
    """
    low, high = 0.05, 5000.0        # cv 3.7e5 and 2.6e-4, outside the range of `Variation`
    target = cv * cv + 1
    while (middle := (low + high) / 2) not in (low, high):
        if exp(lgamma(1 + 2 / middle) - 2 * lgamma(1 + 1 / middle)) > target:
            low = middle
        else:
            high = middle
    return middle


def arrival_times_s(process, generator, num_requests: int | None, duration_s: float = inf) -> np.ndarray:
    """Return the arrivals of a process in seconds.

    They are the first `num_requests`, as far as they lie before `duration_s`; one limit may be absent (None, inf). The
    process draws in blocks, with sizes given by parameters and draws, so equal seeds give equal arrivals.
    """
    running, blocks = RunningTimes(process, generator), []
    while (num_requests is None or running.count < num_requests) and running.end_s < duration_s:
        missing = inf if num_requests is None else num_requests - running.count
        blocks.append(running.next_s(int(min(1.1 * (duration_s - running.end_s) * process.rate_per_s + 100, missing))))
    times = np.concatenate(blocks) if blocks else np.empty(0)
    return times[:np.searchsorted(times, duration_s)]


class RunningTimes:
    """The arrivals of a process, block by block.

    The sizes of the blocks do not show in the times.
    count : arrivals so far. end_s : of the last one.
    """

    def __init__(self, process, generator):
        self._process, self._generator = process, generator
        self.count, self.end_s = 0, 0.0

    def next_s(self, count: int) -> np.ndarray:
        """Return the next arrivals in seconds."""
        gaps = self._process.gaps_s(self._generator, self.count, count)
        gaps[0] += self.end_s           # one running sum over all blocks
        times = np.cumsum(gaps)
        self.count += count
        self.end_s = float(times[-1])
        return times
