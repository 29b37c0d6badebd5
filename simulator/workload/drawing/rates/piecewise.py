"""`piecewise`: a table of rates, in steps or joined by straight lines."""
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator.workload.drawing.rates.base import Changing
from simulator.workload.drawing.rates.segments import Segments
from simulator.workload.limits import MAX_TIME_NS

Time = Annotated[float, Meta(ge=0, le=MAX_TIME_NS / 1e9)]
PerSecond = Annotated[float, Meta(ge=0, le=1e9)]


class PiecewiseParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rates from given times on; the last one has no end."""

    times_s: Annotated[tuple[Time, ...], Meta(min_length=1, description="ascending from 0")]
    rates_per_s: Annotated[tuple[PerSecond, ...], Meta(min_length=1, description="requests a second from each time on")]
    interpolate: Annotated[Literal["step", "linear"], Meta(description=(
        "step: each rate holds until the next time; linear: it changes in a straight line to the next"))] = "step"

    def __post_init__(self):
        if len(self.times_s) != len(self.rates_per_s):
            raise ValueError(f"{len(self.rates_per_s)} rates_per_s for {len(self.times_s)} times_s")
        if self.times_s[0] != 0:
            raise ValueError(f"times_s: the first has to be 0, not {self.times_s[0]:g}")
        for one, other in zip(self.times_s, self.times_s[1:], strict=False):
            if one >= other:
                raise ValueError(f"times_s: they have to ascend, found {other:g} after {one:g}")
        if not any(self.rates_per_s):
            raise ValueError("rates_per_s: all are 0, so nobody would ever come")


class Piecewise(Changing):
    """`piecewise`; its mean is from the first to the last time."""

    Parameters = PiecewiseParameters

    def __init__(self, parameters: PiecewiseParameters):
        starts_s, rates = np.array(parameters.times_s), np.array(parameters.rates_per_s)
        slopes = np.zeros_like(rates)
        if parameters.interpolate == "linear":
            slopes[:-1] = np.diff(rates) / np.diff(starts_s)
        self._segments = Segments(starts_s, rates, slopes)
        last_s = parameters.times_s[-1]
        self.mean_per_s = self._segments.requests_until(last_s) / last_s if last_s else parameters.rates_per_s[0]

    def course(self, generator):
        """Return the table; no part of it is random."""
        return self._segments
