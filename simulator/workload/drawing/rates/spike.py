"""`spike`: a rate that is multiplied for some time."""
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.workload.drawing.rates.base import Changing
from simulator.workload.drawing.rates.segments import Segments
from simulator.workload.limits import MAX_TIME_NS

MAX_S = MAX_TIME_NS / 1e9


class Spike(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the `spikes`."""

    at_s: Annotated[float, Meta(ge=0, le=MAX_S, description="when it begins")]
    duration_s: Annotated[float, Meta(gt=0, le=MAX_S, description="how long it lasts")]
    factor: Annotated[float, Meta(ge=0, le=1e6, description="multiplies the rate meanwhile; 0: no requests")]


class SpikeParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A constant rate with exceptions."""

    base_per_s: Annotated[float, Meta(gt=0, le=1e9, description="the rate outside spikes")]
    spikes: Annotated[tuple[Spike, ...], Meta(min_length=1, description=(
        "the exceptions; where they overlap, their factors multiply"))]


class Spikes(Changing):
    """`spike`; its mean is the rate outside spikes."""

    Parameters = SpikeParameters

    def __init__(self, parameters: SpikeParameters):
        begins = [spike.at_s for spike in parameters.spikes]
        ends = [spike.at_s + spike.duration_s for spike in parameters.spikes]
        starts_s = np.unique([0.0, *begins, *ends])
        rates = np.full(len(starts_s), parameters.base_per_s)
        for begin, end, spike in zip(begins, ends, parameters.spikes, strict=True):
            rates[(starts_s >= begin) & (starts_s < end)] *= spike.factor
        self._segments = Segments(starts_s, rates)
        self.mean_per_s = parameters.base_per_s

    def course(self, generator):
        """Return the steps; no step is random."""
        return self._segments
