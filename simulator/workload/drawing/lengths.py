"""Lengths of prompts and outputs: distributions of token counts.

A distribution is built as `Distribution(parameters)` and has one method, `draw(generator, count)`: `count` token
counts, int64. All distributions round to the nearest integer, then move values outside [min, max] to the nearer end.
"""
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.workload.limits import MAX_TOKENS

MAX_ZIPF_SUPPORT = 2**24        # the table of its cumulative weights stays under 128 MiB

Tokens = Annotated[int, Meta(ge=0, le=MAX_TOKENS, extra={"unit": "tokens"})]
Real = Annotated[float, Meta(ge=0, le=MAX_TOKENS, extra={"unit": "tokens"})]
Mean = Annotated[Real, Meta(description="mean in tokens, before rounding and bounds")]
Deviation = Annotated[Real, Meta(description="standard deviation in tokens, before rounding and bounds")]


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bounds of every distribution."""

    min: Annotated[Tokens, Meta(description="shorter draws become this")] = 1
    max: Annotated[Tokens, Meta(description="longer draws become this")] = MAX_TOKENS

    def __post_init__(self):
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")


class ConstantParameters(Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One length for all."""

    tokens: Annotated[Tokens | None, Meta(description="the length")] = None
    value: Annotated[Tokens | None, Meta(description="another name of tokens")] = None
    min: Annotated[Tokens, Meta(description="a shorter one becomes this")] = 0

    def __post_init__(self):
        super().__post_init__()
        if (self.tokens is None) == (self.value is None):
            raise ValueError("give either tokens or value")


class UniformParameters(Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every length from min to max, both included, equally likely."""

    max: Annotated[Tokens, Meta(description="longest")]


class NormalParameters(Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A normal distribution, moved into the bounds."""

    mean: Mean
    std: Deviation


class LognormalParameters(Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A log-normal distribution.

    Mean and deviation are those of the lengths themselves, not of their logarithm.
    """

    mean: Annotated[float, Meta(ge=0.001, le=MAX_TOKENS, extra={"unit": "tokens"}, description=(
        "mean in tokens, before rounding and bounds"))]
    std: Annotated[Real | None, Meta(description="standard deviation in tokens, before rounding and bounds")] = None
    cv: Annotated[Annotated[float, Meta(ge=0, le=1000)] | None, Meta(description=(
        "standard deviation over mean, instead of std"))] = None

    def __post_init__(self):
        super().__post_init__()
        if (self.std is None) == (self.cv is None):
            raise ValueError("give either std or cv")


class ExponentialParameters(Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An exponential distribution."""

    mean: Mean


class ZipfParameters(Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Many short lengths: the k-th length from min on has weight 1 / k**exponent."""

    max: Annotated[Tokens, Meta(description="longest")]
    exponent: Annotated[float, Meta(ge=0, le=100, description="0: uniform")] = 1.0

    def __post_init__(self):
        super().__post_init__()
        if self.max - self.min >= MAX_ZIPF_SUPPORT:
            raise ValueError(f"from min to max are {self.max - self.min + 1} lengths, more than {MAX_ZIPF_SUPPORT}")


class ParetoLognormalParameters(Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body and a long tail: Pareto with a probability, else log-normal.

    The names are those of BLIS; `mu` and `sigma` are of the logarithm.
    """

    alpha: Annotated[float, Meta(gt=0, le=1000, description=(
        "Pareto: P(length > x) = (xm / x)**alpha"))]
    xm: Annotated[float, Meta(gt=0, le=MAX_TOKENS, extra={"unit": "tokens"}, description="Pareto: the shortest")]
    mu: Annotated[float, Meta(ge=-30, le=30, extra={"unit": "ln tokens"}, description="mean of the logarithm")]
    sigma: Annotated[float, Meta(ge=0, le=30, extra={"unit": "ln tokens"}, description="deviation of the logarithm")]
    mix_weight: Annotated[float, Meta(ge=0, le=1, description="probability of Pareto")]


class Length:
    """A distribution of token counts: subclasses sample, this class rounds and bounds."""

    def __init__(self, parameters):
        self.parameters = parameters

    def draw(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return `count` token counts, int64."""
        bounded = np.clip(np.rint(self.sample(generator, count)), self.parameters.min, self.parameters.max)
        return bounded.astype(np.int64)


class Constant(Length):
    """`constant`."""

    Parameters = ConstantParameters

    def sample(self, generator, count):
        given = self.parameters
        return np.full(count, given.value if given.tokens is None else given.tokens)


class Uniform(Length):
    """`uniform`."""

    Parameters = UniformParameters

    def sample(self, generator, count):
        return generator.integers(self.parameters.min, self.parameters.max, count, endpoint=True)


class Normal(Length):
    """`normal`."""

    Parameters = NormalParameters

    def sample(self, generator, count):
        return generator.normal(self.parameters.mean, self.parameters.std, count)


class Lognormal(Length):
    """`lognormal`: sigma**2 = log(1 + (std / mean)**2), mu = log(mean) - sigma**2 / 2."""

    Parameters = LognormalParameters

    def sample(self, generator, count):
        given = self.parameters
        variance = np.log1p((given.cv if given.std is None else given.std / given.mean) ** 2)
        return generator.lognormal(np.log(given.mean) - variance / 2, np.sqrt(variance), count)


class Exponential(Length):
    """`exponential`."""

    Parameters = ExponentialParameters

    def sample(self, generator, count):
        return generator.exponential(self.parameters.mean, count)


class Zipf(Length):
    """`zipf`."""

    Parameters = ZipfParameters

    def sample(self, generator, count):
        return self.parameters.min + zipf_ranks(
            generator, count, self.parameters.max - self.parameters.min + 1, self.parameters.exponent)


class ParetoLognormal(Length):
    """`pareto_lognormal`: a mixture.

    xm u**(-1 / alpha) for a uniform u in (0, 1], or exp(mu + sigma z). Three uniform numbers a request: the choice
    between both, u, and an angle that with u gives the normal z by Box and Muller's formula.
    """

    Parameters = ParetoLognormalParameters

    def sample(self, generator, count):
        given = self.parameters
        choice, radius, angle = generator.random((count, 3)).T
        exponential = -np.log1p(-radius)
        tail = np.log(given.xm) + exponential / given.alpha
        body = given.mu + given.sigma * np.sqrt(2 * exponential) * np.cos(2 * np.pi * angle)
        logarithm = np.where(choice < given.mix_weight, tail, body)
        return np.exp(np.minimum(logarithm, 40.0))      # bounds are far below exp(40)


def zipf_ranks(generator: np.random.Generator, count: int, support: int, exponent: float) -> np.ndarray:
    """Return `count` ranks below `support`, rank k with weight 1 / (k + 1)**exponent."""
    return weighted_ranks(generator, count, np.arange(1, support + 1, dtype=np.float64) ** -exponent)


def weighted_ranks(generator: np.random.Generator, count: int, weights) -> np.ndarray:
    """Return `count` indices into `weights`, drawn with these probabilities."""
    weights = np.asarray(weights, dtype=np.float64)
    cumulative = np.cumsum(weights / weights.max())     # not subnormal, so that a draw stays below the total
    return np.searchsorted(cumulative, generator.random(count) * cumulative[-1], side="right")
