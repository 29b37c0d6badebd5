"""How long prompts and outputs are: distributions of token counts.

A distribution is built as `Distribution(parameters)` and has one method, `draw(generator, count)`: `count` token
counts, int64. Every one rounds to the nearest integer, then moves what lies outside [min, max] to the nearer end.
"""
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.errors import InputErrors
from simulator.workload.limits import MAX_TOKENS
from simulator.workload.reading.files import read_bytes
from simulator.workload.reading.tables import read_integer_column

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

    tokens: Annotated[Tokens, Meta(description="the length")]
    min: Annotated[Tokens, Meta(description="a shorter one becomes this")] = 0


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
    std: Deviation


class ExponentialParameters(Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An exponential distribution."""

    mean: Mean


class ZipfParameters(Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Short ones are common: the k-th length from min on has weight 1 / k**exponent."""

    max: Annotated[Tokens, Meta(description="longest")]
    exponent: Annotated[float, Meta(ge=0, le=100, description="0: uniform")] = 1.0

    def __post_init__(self):
        super().__post_init__()
        if self.max - self.min >= MAX_ZIPF_SUPPORT:
            raise ValueError(f"from min to max are {self.max - self.min + 1} lengths, more than {MAX_ZIPF_SUPPORT}")


class EmpiricalParameters(Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lengths drawn with replacement from `values`, or from a column of a CSV file."""

    min: Annotated[Tokens, Meta(description="shorter draws become this")] = 0
    values: Annotated[tuple[Tokens, ...], Meta(description="the lengths; or give path and column")] = ()
    weights: Annotated[tuple[Annotated[float, Meta(ge=0)], ...], Meta(
        description="how likely each of `values` is, in any unit; default: equally likely")] = ()
    path: Annotated[str, Meta(description="CSV file, plain or .gz", extra={"path": True})] = ""
    column: Annotated[str, Meta(description="its column of lengths")] = ""

    def __post_init__(self):
        super().__post_init__()
        if bool(self.values) == bool(self.path):
            raise ValueError("give either values, or path and column")
        if self.values and self.column:
            raise ValueError("column: belongs to path; values are given")
        if self.path and not self.column:
            raise ValueError(f'which column of "{self.path}" holds the lengths? give column')
        if self.weights and len(self.weights) != len(self.values):
            raise ValueError(f"{len(self.weights)} weights for {len(self.values)} values")
        if self.weights and not 0 < sum(self.weights) < float("inf"):
            raise ValueError("the weights must have a positive, finite sum")


class TraceParameters(Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A column of a CSV file in its order: row i is the length of request i."""

    min: Annotated[Tokens, Meta(description="shorter ones become this")] = 0
    path: Annotated[str, Meta(description="CSV file, plain or .gz", extra={"path": True})]
    column: Annotated[str, Meta(description="its column of lengths")]


class ParetoLognormalParameters(Bounds, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body and a long tail: Pareto with a probability, else log-normal.

    The names are those of BLIS; here `mu` and `sigma` are of the logarithm.
    """

    alpha: Annotated[float, Meta(gt=0, le=1000, description=(
        "Pareto: P(length > x) = (xm / x)**alpha"))]
    xm: Annotated[float, Meta(gt=0, le=MAX_TOKENS, extra={"unit": "tokens"}, description="Pareto: the shortest")]
    mu: Annotated[float, Meta(ge=-30, le=30, extra={"unit": "ln tokens"}, description="mean of the logarithm")]
    sigma: Annotated[float, Meta(ge=0, le=30, extra={"unit": "ln tokens"}, description="its standard deviation")]
    mix_weight: Annotated[float, Meta(ge=0, le=1, description="how often it is Pareto")]


class Length:
    """A distribution of token counts: subclasses sample, this rounds and bounds."""

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
        return np.full(count, self.parameters.tokens)


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
        variance = np.log1p((self.parameters.std / self.parameters.mean) ** 2)
        return generator.lognormal(np.log(self.parameters.mean) - variance / 2, np.sqrt(variance), count)


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

    xm u**(-1 / alpha) for a uniform u in (0, 1], or exp(mu + sigma z). Three uniform numbers a request: which of them,
    u, and with u the normal z by Box and Muller's formula.
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


class Trace(Length):
    """`trace`."""

    Parameters = TraceParameters

    def __init__(self, parameters):
        super().__init__(parameters)
        self._values = read_integer_column(parameters.path, read_bytes(parameters.path), parameters.column)

    def sample(self, generator, count):
        if count > len(self._values):
            given = self.parameters
            raise InputErrors([f"{given.path}: column {given.column} has {len(self._values)} lengths, expected "
                               f"{count}, one for each request"])
        return self._values[:count]


class Empirical(Length):
    """`empirical`."""

    Parameters = EmpiricalParameters

    def __init__(self, parameters):
        super().__init__(parameters)
        self._values = np.array(parameters.values, dtype=np.int64)
        if parameters.path:
            self._values = read_integer_column(parameters.path, read_bytes(parameters.path), parameters.column)

    def sample(self, generator, count):
        if not self.parameters.weights:
            return self._values[generator.integers(0, len(self._values), count)]
        return self._values[weighted_ranks(generator, count, self.parameters.weights)]


def zipf_ranks(generator: np.random.Generator, count: int, support: int, exponent: float) -> np.ndarray:
    """Return `count` ranks below `support`, rank k with weight 1 / (k + 1)**exponent."""
    return weighted_ranks(generator, count, np.arange(1, support + 1, dtype=np.float64) ** -exponent)


def weighted_ranks(generator: np.random.Generator, count: int, weights) -> np.ndarray:
    """Return `count` indices into `weights`, each as likely as its weight."""
    weights = np.asarray(weights, dtype=np.float64)
    cumulative = np.cumsum(weights / weights.max())     # not subnormal, so that a draw stays below the total
    return np.searchsorted(cumulative, generator.random(count) * cumulative[-1], side="right")
