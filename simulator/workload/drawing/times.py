"""Drawn times: think times of users, and gaps between turns.

A distribution is built as `Distribution(parameters)` and has one method, `draw(generator, count)`: `count` times in
seconds, float64, not below 0. `mean_s` is their mean; keys that need a mean are refused without it.
"""
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.workload.limits import MAX_TIME_NS

MAX_S = MAX_TIME_NS / 1e9
Seconds = Annotated[float, Meta(ge=0, le=MAX_S, extra={"unit": "s"})]
Positive = Annotated[float, Meta(gt=0, le=MAX_S, extra={"unit": "s"})]
Variation = Annotated[float, Meta(ge=0, le=100, description="standard deviation over mean")]


class ConstantParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One time for all."""

    value: Annotated[Seconds, Meta(description="the time")]


class ExponentialParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An exponential distribution."""

    mean: Annotated[Seconds, Meta(description="mean time")]


class UniformParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Any time from min to max."""

    min: Annotated[Seconds, Meta(description="shortest")] = 0.0
    max: Annotated[Seconds, Meta(description="longest")]

    def __post_init__(self):
        if self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}")


class LognormalParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A log-normal distribution.

    Mean and variation are those of the times themselves, not of their logarithm.
    """

    mean: Annotated[Positive, Meta(description="mean time")]
    cv: Variation


class Constant:
    """`constant`: one time for all."""

    Parameters = ConstantParameters

    def __init__(self, parameters):
        self.parameters = parameters

    @property
    def mean_s(self):
        return self.parameters.value

    def draw(self, generator, count):
        return np.full(count, self.parameters.value)


class Exponential:
    """`exponential`: a memoryless time."""

    Parameters = ExponentialParameters

    def __init__(self, parameters):
        self.parameters = parameters

    @property
    def mean_s(self):
        return self.parameters.mean

    def draw(self, generator, count):
        return generator.standard_exponential(count) * self.parameters.mean


class Uniform:
    """`uniform`: any time from min to max."""

    Parameters = UniformParameters

    def __init__(self, parameters):
        self.parameters = parameters

    @property
    def mean_s(self):
        return (self.parameters.min + self.parameters.max) / 2

    def draw(self, generator, count):
        return generator.uniform(self.parameters.min, self.parameters.max, count)


class Lognormal:
    """`lognormal`: long tails; sigma**2 = ln(1 + cv**2), mu = ln(mean) - sigma**2 / 2."""

    Parameters = LognormalParameters

    def __init__(self, parameters):
        variance = np.log1p(parameters.cv ** 2)
        self.mean_s = parameters.mean
        self.mu, self.sigma = np.log(parameters.mean) - variance / 2, np.sqrt(variance)

    def draw(self, generator, count):
        return np.exp(self.mu + self.sigma * generator.standard_normal(count))
