"""Short times that an experiment gives as a number or lets be drawn, in the unit of their key."""
import math
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator.domain.traits import check_readers

Time = Annotated[float, Meta(ge=0, le=1e12, extra={"unit": "as the key"})]


class DrawnTime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A distribution of times; its numbers are in the unit of the key."""

    distribution: Annotated[Literal["constant", "lognormal", "exponential", "empirical", "listed"], Meta(description=(
        "constant: one value; lognormal: by median and mean; exponential: by mean; empirical: any of values, equally "
        "likely; listed: values, cyclically"))] = "constant"
    value: Annotated[Time, Meta(description="constant: the time")] = 0.0
    median: Annotated[Time, Meta(description="lognormal: the median")] = 0.0
    mean: Annotated[Time, Meta(description="lognormal and exponential: the mean")] = 0.0
    values: Annotated[tuple[Time, ...], Meta(extra={"unit": "as the key"}, description=(
        "empirical and listed: the times"))] = ()

    def __post_init__(self):
        check_readers(self, "distribution", {
            "value": ("constant",), "median": ("lognormal",), "mean": ("lognormal", "exponential"),
            "values": ("empirical", "listed")})
        if self.distribution == "lognormal" and not 0 < self.median <= self.mean:
            raise ValueError(f"lognormal: give 0 < median <= mean, not {self.median:g} and {self.mean:g}")
        if self.distribution in ("empirical", "listed") and not self.values:
            raise ValueError(f"{self.distribution}: give values")

    def draw(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return `count` times, float64, in the unit of the key."""
        if self.distribution == "lognormal":            # mean / median = exp(sigma**2 / 2)
            sigma = math.sqrt(2 * math.log(self.mean / self.median))
            return self.median * np.exp(sigma * generator.standard_normal(count))
        if self.distribution == "exponential":
            return self.mean * generator.standard_exponential(count)
        if self.distribution == "empirical":
            return generator.choice(np.array(self.values), count)
        if self.distribution == "listed":
            return np.resize(np.array(self.values), count)
        return np.full(count, self.value)


def drawn(time: float | DrawnTime) -> DrawnTime:
    """Return the distribution given by a key; a number is a constant."""
    return time if isinstance(time, DrawnTime) else DrawnTime(value=time)
