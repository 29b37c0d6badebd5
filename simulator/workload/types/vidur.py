"""`vidur`: Vidur's synthetic requests, with times and lengths equal to the last bit.

Source: github.com/microsoft/vidur, vidur/request_generator/synthetic_request_generator.py, commit 7d47513.
"""
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.errors import InputErrors, KeyFault
from simulator.workload.column_options import DEFAULT_OPTIONS, ColumnOptions
from simulator.workload.columns import Columns, in_arrival_order, nearest
from simulator.workload.drawing.vidur.draws import Draws
from simulator.workload.limits import MAX_TIME_NS


class IntervalGenerator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Gaps between arrivals; the keys of the generator are in this table, too."""

    type: Annotated[str, Meta(description="generator of the gaps")] = "poisson"
    parameters: Annotated[Any, Meta(extra={"kind": "vidur_interval"})]


class LengthGenerator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prompt and output lengths; the keys of the generator are in this table, too."""

    type: Annotated[str, Meta(description="generator of the lengths")] = "fixed"
    parameters: Annotated[Any, Meta(extra={"kind": "vidur_length"})]


class VidurParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Vidur's synthetic_request_generator_config; duration_s wins, as there."""

    num_requests: Annotated[Annotated[int, Meta(ge=1, le=10**7)] | None, Meta(description=(
        "number of requests; absent, and without duration_s: as many as the generators' files have"))] = None
    duration_s: Annotated[Annotated[float, Meta(gt=0, le=MAX_TIME_NS / 1e9)] | None, Meta(description=(
        "all requests arrive before this time"))] = None
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1, description=(
        "Vidur's seed, which does not change with the experiment's"))] = 42
    interval_generator: Annotated[IntervalGenerator, Meta(description="when requests arrive")]
    length_generator: Annotated[LengthGenerator, Meta(description="lengths of requests")]

    def __post_init__(self):
        ends = "trace" in (self.interval_generator.type, self.length_generator.type)
        if self.num_requests is None and self.duration_s is None and not ends:
            raise ValueError("give num_requests, duration_s, or both")


class Vidur:
    """Vidur's synthetic requests.

    For each request a gap is drawn, then lengths, from common random numbers.
    """

    Parameters = VidurParameters

    def __init__(self, parameters: VidurParameters):
        self._parameters = parameters

    def columns(self, streams: RandomStreams, options: ColumnOptions = DEFAULT_OPTIONS) -> Columns:
        """Return the requests.

        Raises
        ------
        InputErrors
            A file of a generator that cannot be used, or ends too early; a request without prompt.
        """
        given = self._parameters
        duration_s = given.duration_s if options.arrivals else None
        count = given.num_requests if duration_s is None else None
        rows = self._rows(options.num_requests or count, duration_s)
        times = np.array([at for at, _, _ in rows], dtype=np.float64)
        prompts, outputs = (np.array([row[i] for row in rows], dtype=np.float64).astype(np.int64) for i in (1, 2))
        is_kept = np.ones(len(rows), bool) if duration_s is None else times < duration_s
        if not is_kept.any():
            raise InputErrors([KeyFault("workload: nobody arrives")])
        if times[is_kept].max() * 1e9 > MAX_TIME_NS:
            raise InputErrors([KeyFault(f"workload: the last request arrives after {MAX_TIME_NS / 1e9:g} s")])
        if prompts[is_kept].min() < 1:
            raise InputErrors([KeyFault(
                "workload.length_generator: makes a prompt of 0 tokens; raise min_tokens or prefill_to_decode_ratio")])
        arrival_ns = nearest(times * 1e9) if options.arrivals else np.zeros(len(rows), np.int64)
        return in_arrival_order(Columns(arrival_ns[is_kept], prompts[is_kept], outputs[is_kept]))

    def _rows(self, count: int | None, duration_s: float | None) -> list[tuple[float, float, float]]:
        """Return time, prompt and output of requests, the first at or after `duration_s` included."""
        given, draws = self._parameters, Draws(self._parameters.seed)
        interval, length = given.interval_generator, given.length_generator
        gaps = registry.load("vidur_interval", interval.type)(interval.parameters)
        lengths = registry.load("vidur_length", length.type)(length.parameters)
        rows, at_s = [], 0.0
        while (count is None or len(rows) < count) and (duration_s is None or at_s < duration_s):
            gap_s = gaps.next_s(draws)
            both = None if gap_s is None else lengths.next(draws)
            if both is None:
                if count is None and duration_s is None:
                    break
                raise InputErrors([KeyFault(
                    f"workload: the files of the generators end after {len(rows)} requests; more are asked for")])
            at_s += gap_s
            rows.append((at_s, *both))
        return rows
