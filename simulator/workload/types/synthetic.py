"""`synthetic`: requests drawn from an arrival process and distributions of lengths, or as by a benchmark tool."""
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.domain.load import Load, Measure, Warmup
from simulator.errors import InputErrors, KeyFault
from simulator.workload.column_options import DEFAULT_OPTIONS, ColumnOptions
from simulator.workload.columns import Columns, in_arrival_order
from simulator.workload.drawing.timing import MAX_REQUESTS, Arrival, RateChoice, Timing, in_ns
from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.presets.base import Bounds


class SyntheticParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Drawn requests: a number, all before an end, or both."""

    num_requests: Annotated[Annotated[int, Meta(ge=1, le=MAX_REQUESTS)] | None, Meta(description=(
        "number of requests"))] = None
    duration_s: Annotated[Annotated[float, Meta(gt=0, le=MAX_TIME_NS / 1e9)] | None, Meta(description=(
        "all requests arrive before this time"))] = None
    time_scale: Annotated[float, Meta(gt=0, le=1e9, description=(
        "multiplies all arrivals, after rates and duration_s are applied"))] = 1.0
    arrival: Annotated[Arrival | None, Meta(description=(
        "when requests arrive; absent if [workload.load] releases them"))] = None
    rate: Annotated[RateChoice | None, Meta(description=(
        "a changing rate, for the process of [workload.arrival], default poisson"))] = None
    preset: Annotated[str, Meta(description="the shape of the requests")] = "none"
    parameters: Annotated[Any, Meta(extra={"kind": "preset"})]

    def __post_init__(self):
        fixed, says_when = (getattr(self.parameters, key, None) for key in ("fixed_num_requests", "says_when"))
        if says_when and (self.arrival is not None or self.rate is not None or self.time_scale != 1.0):
            raise ValueError(f"arrival, rate and time_scale: {self.filled_by} {says_when}")
        if fixed is not None:
            msgspec.structs.force_setattr(self, "num_requests", fixed)
        if check := getattr(self.parameters, "check", None):
            check(self.bounds)

    @property
    def filled_by(self) -> str:
        """The key that fills in other keys, for messages."""
        return f'preset = "{self.preset}"'

    @property
    def bounds(self) -> Bounds:
        """The bounds of the workload, before `time_scale`."""
        return Bounds(self.num_requests, self.duration_s)

    @property
    def ends_s(self) -> float | None:
        """The end of the workload as it is served, s."""
        return None if self.duration_s is None else self.duration_s * self.time_scale

    @property
    def rate_per_s(self) -> float | None:
        """Requests per second, if the preset gives them."""
        return getattr(self.parameters, "requests_per_s", None)

    def fill_load(self, given: Load) -> Load:
        """Return [workload.load] with the values of the preset's tool."""
        return self._filled("fill_load", given)

    def fill_measure(self, given: Measure) -> Measure:
        """Return [workload.measure] with the requests that the preset's tool leaves out."""
        return self._filled("fill_measure", given)

    def fill_warmup(self, given: Warmup) -> Warmup:
        """Return [workload.warmup] with the warm-up requests of the preset's tool."""
        return self._filled("fill_warmup", given)

    def _filled(self, method: str, given):
        fill = getattr(self.parameters, method, None)       # parameters of a user's class may lack the method
        return given if fill is None else fill(given, self.bounds)


class Synthetic:
    """A drawn workload; its `preset` gives the shape of requests.

    Each property has its own random stream, so changing one leaves the others as they are.
    """

    Parameters = SyntheticParameters

    def __init__(self, parameters: SyntheticParameters):
        self.parameters = parameters
        self.timing = Timing(parameters.arrival, parameters.rate)
        self.preset = registry.load("preset", parameters.preset)(parameters.parameters)

    def columns(self, streams: RandomStreams, options: ColumnOptions = DEFAULT_OPTIONS) -> Columns:
        """Return the requests.

        Raises
        ------
        InputErrors
            No request, too many, too late, or with a prompt that is empty or too long.
        """
        return self.drawn(streams, self._arrivals(streams) if options.arrivals else self._at_once(options))

    def refuse_times(self) -> None:
        """Refuse keys on the times of requests, which a load releases itself."""
        for key, default in (("rate", None), ("time_scale", 1.0)):
            if getattr(self.parameters, key) != default:
                raise InputErrors([KeyFault(f"workload.{key}: [workload.load] says when requests come; leave it out")])

    def drawn(self, streams: RandomStreams, arrival_ns: np.ndarray) -> Columns:
        """Return requests with these arrival times, or with the first of the times."""
        drawn = self.preset.draw(streams, len(arrival_ns))
        arrival_ns = arrival_ns[:len(drawn.prompt_tokens)]
        return in_arrival_order(Columns(
            arrival_ns, drawn.prompt_tokens, drawn.output_tokens, timeout_ns=drawn.timeout_ns, prompts=drawn.prompts,
            notes=drawn.notes))

    def _arrivals(self, streams: RandomStreams) -> np.ndarray:
        given = self.parameters
        if given.num_requests is None and given.duration_s is None and not self.timing.ends_by_itself:
            raise InputErrors([KeyFault("workload: give num_requests, duration_s, or both")])
        if getattr(given.parameters, "says_when", None):
            return in_ns(self.preset.arrivals_s(streams, given.bounds), given.duration_s)
        return self.timing.arrivals_ns(
            self.preset.gaps(streams), streams, given.num_requests, given.duration_s, given.time_scale)

    def _at_once(self, options: ColumnOptions) -> np.ndarray:
        """Return zero arrivals, for a load that releases requests itself."""
        given = self.parameters
        self.refuse_times()
        count = options.num_requests or given.num_requests
        if given.num_requests is None and self.preset.draws_all_at_once:
            raise InputErrors([KeyFault(
                f'workload.num_requests: missing; preset = "{given.preset}" draws all its requests together')])
        if not count:
            raise InputErrors([KeyFault("workload: give num_requests, duration_s, or both")])
        return np.zeros(count, np.int64)
