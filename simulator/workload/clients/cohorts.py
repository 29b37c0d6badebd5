"""[[workload.cohorts]]: many equal clients that join one after the other, and leave."""
import math
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.workload.drawing.cohorts import (
    ALWAYS,
    Duties,
    Presence,
    busy_course,
    diurnal_duties,
    drain_duties,
    join_times_s,
    spike_duties,
    square,
)
from simulator.workload.limits import MAX_TIME_NS

MAX_S = MAX_TIME_NS / 1e9
MAX_POPULATION = 100_000            # as in BLIS: inference-sim, sim/workload/spec.go
SHAPES = ("diurnal", "spike", "drain")


class Diurnal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Busy hours of a day, which begins at time 0.

    The part of the hour from h on is (1 + cos(2 pi (h - peak) / 24)) / 2 (1 - 1 / R) + 1 / R, R = peak_to_trough. A day
    has 24 hours, however long `period_s` is.
    """

    peak_hour: Annotated[float, Meta(ge=0, le=1e6, extra={"unit": "h"}, description=(
        "when members are always active, in hours of 3,600 s since the beginning"))] = 12.0
    peak_to_trough: Annotated[float, Meta(ge=1, le=1e9, description="1 over the smallest active part of an hour")] = 4.0
    period_s: Annotated[float, Meta(ge=1e-3, le=9e9, description="length of a day")] = 86_400.0


class Spell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An interval; it begins `at_s` after the beginning of the workload."""

    at_s: Annotated[float, Meta(ge=0, le=MAX_S, description="when it begins")] = 0.0
    duration_s: Annotated[float, Meta(gt=0, le=MAX_S, description="how long it lasts")]


class Cohort(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Members, each like one of [[workload.clients]], which sends through them alone."""

    name: Annotated[str, Meta(min_length=1, description="names the random streams of its members")]
    client: Annotated[str, Meta(min_length=1, description=(
        "id of one of [[workload.clients]]; members share its rate, each has its load and num_requests"))]
    population: Annotated[int, Meta(ge=1, le=MAX_POPULATION, extra={"unit": "members"}, description="members")]
    join_s: Annotated[float, Meta(ge=0, le=MAX_S, description="when the first member joins")] = 0.0
    leave_s: Annotated[float, Meta(gt=0, extra={"inf": True}, description=(
        "from then on members send nothing; their running requests go on"))] = math.inf
    join_spread_s: Annotated[float, Meta(ge=0, le=MAX_S, description=(
        "member i of n joins i / n of it after join_s"))] = 0.0
    window: Annotated[Literal["none", "square", "thin"], Meta(description=(
        "present members send: none: at all times; square: in the first part of each hour or segment, as in BLIS; "
        "thin: at all times, at that part of their rate"))] = "none"
    diurnal: Annotated[Diurnal | None, Meta(description="active part of each hour, over a day")] = None
    spike: Annotated[Spell | None, Meta(description="active part: 1 in this time, else 0")] = None
    drain: Annotated[Spell | None, Meta(description=(
        "active part: 1 until this time; 1, 0.9 .. 0.1 in ten segments of it; then 0"))] = None

    def __post_init__(self):
        given = [shape for shape in SHAPES if getattr(self, shape) is not None]
        if self.window == "none" and given:
            raise ValueError(f'{given[0]} takes window = "square" or "thin"')
        if self.window != "none" and len(given) != 1:
            raise ValueError(f'window = "{self.window}" takes one of {", ".join(SHAPES)}; '
                             f"found {', '.join(given) or 'none'}")
        if self.window == "thin" and self.spike is not None:
            raise ValueError('spike takes window = "square": in it members send all the time, outside nothing')
        last_s = float(join_times_s(self.join_s, self.join_spread_s, self.population)[-1])
        if self.leave_s <= last_s:
            raise ValueError(f"leave_s = {self.leave_s:g}: expected more than {last_s:g}, when the last member joins")

    @property
    def ends_by_itself(self) -> bool:
        """Return whether all members stop sending at some time."""
        return not math.isinf(self.leave_s) or self.spike is not None or self.drain is not None

    def duties(self) -> Duties:
        """Return the activity of members over time."""
        if self.diurnal is not None:
            duties = diurnal_duties(self.diurnal.peak_hour, self.diurnal.peak_to_trough, self.diurnal.period_s)
        elif self.spike is not None:
            duties = spike_duties(self.spike.at_s, self.spike.duration_s)
        elif self.drain is not None:
            duties = drain_duties(self.drain.at_s, self.drain.duration_s)
        else:
            duties = ALWAYS
        return square(duties) if self.window == "square" else duties

    def presences(self) -> Iterator[Presence]:
        """Yield each member's presence."""
        duties = self.duties()
        busy = busy_course(duties)
        for join_s in join_times_s(self.join_s, self.join_spread_s, self.population).tolist():
            yield Presence(join_s, self.leave_s, duties, busy)

    def num_openings(self, until_s: float) -> float:
        """Return how often a slot of a member opens before a time, at most."""
        if self.diurnal is None:
            return len(self.duties().starts_s)
        return 24 * (1 + min(until_s, self.leave_s) / self.diurnal.period_s)
