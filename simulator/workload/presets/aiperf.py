"""`aiperf`: AIPerf's ways to send requests: at a rate, as fast as slots allow, or user by user.

- request_rate: gaps of `arrival_pattern`; gamma has shape arrival_smoothness. Over request_rate_ramp_duration_s the
  rate rises every 0.1 s, from request_rate x 0.1 / the ramp on; the gap after a request is drawn at the rate that
  holds when the request comes.
- concurrency: slots; over concurrency_ramp_duration_s they go from 1 to all, one more after equal times.
- user_centric_rate: [workload.load] mode = "user_rate" of num_users. AIPerf requires conversations of two turns or
  more: type = "sessions" has them, with that mode. Here each request is a conversation of one turn.
- concurrency beside request_rate, and prefill_concurrency, are refused: AIPerf lets a request without a free slot wait
  until the next gap is over, and sources of requests here are not notified of first tokens.

num_requests is --request-count, and --num-sessions, since conversations have one turn; duration_s is
--benchmark-duration, after which answers have benchmark_grace_period_s. A warm-up is drawn separately, and is over
before the other requests come. A share of all requests is given up after a delay, --request-cancellation-rate. AIPerf's
random numbers follow from a seed that it derives; here they are the experiment's.

Source: ai-dynamo/aiperf, docs/benchmark-modes/timing-modes-reference.md@0efdc27d; docs/tutorials: ramping.md@09c49999,
warmup.md, arrival-patterns.md, request-cancellation.md, request-rate-concurrency.md@13992dbd,
time-based-benchmarking.md@0f55efe2.
"""
import math
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta
from msgspec.structs import fields

from simulator.domain.load import Count, Positive, Rate, Seconds, Stage, Warmup
from simulator.workload.drawing.timing import check_number
from simulator.workload.limits import MISSING
from simulator.workload.presets.base import only
from simulator.workload.presets.own import Own, OwnParameters
from simulator.workload.ramps import stepped_times_s

Pattern = Literal["poisson", "constant", "gamma"]
Slots = Annotated[Count | None, Meta(extra={"unit": "slots"})]
Smoothness = Annotated[float, Meta(ge=1e-4, le=1e4)]            # 1 / cv**2
PerSecond = Annotated[Rate | None, Meta(extra={"unit": "requests/s"})]
GRACE_S = 30.0

# Keys that each way to send requests reads, besides the common ones.
READ = {
    "request_rate": ("arrival_pattern", "arrival_smoothness", "request_rate_ramp_duration_s", "warmup_request_rate",
                     "warmup_arrival_pattern", "warmup_request_rate_ramp_duration_s", "warmup_request_count",
                     "warmup_duration_s"),
    "concurrency": ("concurrency_ramp_duration_s", "warmup_concurrency", "warmup_concurrency_ramp_duration_s",
                    "warmup_request_count", "warmup_duration_s"),
    "user_centric_rate": ("num_users",)}
OF_WARMUPS = ("warmup_request_rate", "warmup_arrival_pattern", "warmup_request_rate_ramp_duration_s",
              "warmup_concurrency", "warmup_concurrency_ramp_duration_s")


class AiperfParameters(OwnParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """AIPerf's options, by their names."""

    request_rate: Annotated[PerSecond, Meta(description="requests at this rate")] = None
    arrival_pattern: Annotated[Pattern, Meta(description="of request_rate: distribution of the gaps")] = "poisson"
    arrival_smoothness: Annotated[Smoothness | None, Meta(extra={"unit": "shape"}, description=(
        "of gamma: above 1 more even than poisson, below 1 burstier; default: 1"))] = None
    request_rate_ramp_duration_s: Annotated[Seconds, Meta(description="time over which the rate rises")] = 0.0
    concurrency: Annotated[Slots, Meta(description="instead of a rate: number of slots")] = None
    concurrency_ramp_duration_s: Annotated[Seconds, Meta(description="time over which slots open, one by one")] = 0.0
    user_centric_rate: Annotated[PerSecond, Meta(description="instead: rate of all users together")] = None
    num_users: Annotated[Count | None, Meta(description="of user_centric_rate: number of users")] = None
    prefill_concurrency: Annotated[Count | None, Meta(extra={"unit": "requests"}, description=(
        "most requests without a first token: refused, since sources are not notified of first tokens"))] = None
    benchmark_grace_period_s: Annotated[Annotated[float, Meta(ge=0)] | None, Meta(extra={"inf": True}, description=(
        "requests that run this long after duration_s are given up; default: 30, or inf for user_centric_rate"))] = None
    warmup_request_count: Annotated[Count | None, Meta(extra={"unit": "requests"}, description=(
        "warm-up requests, sent before the others"))] = None
    warmup_duration_s: Annotated[Positive | None, Meta(description=(
        "all warm-up requests come in this time after the warm-up's beginning"))] = None
    warmup_request_rate: Annotated[PerSecond, Meta(description="rate of warm-ups; default: request_rate")] = None
    warmup_arrival_pattern: Annotated[Pattern | None, Meta(description="of warm-ups; default: arrival_pattern")] = None
    warmup_request_rate_ramp_duration_s: Annotated[Seconds | None, Meta(description=(
        "of warm-ups; default: request_rate_ramp_duration_s"))] = None
    warmup_concurrency: Annotated[Slots, Meta(description="of warm-ups; default: concurrency")] = None
    warmup_concurrency_ramp_duration_s: Annotated[Seconds | None, Meta(description=(
        "of warm-ups; default: concurrency_ramp_duration_s"))] = None
    request_cancellation_rate: Annotated[float, Meta(ge=0, le=100, extra={"unit": "percent"}, description=(
        "share of all requests that their clients give up"))] = 0.0
    request_cancellation_delay_s: Annotated[Seconds, Meta(description="time from arrival to giving up")] = 0.0

    def __post_init__(self):
        if self.prefill_concurrency is not None:
            raise ValueError("prefill_concurrency: who lets requests come hears of the end of others, not of their "
                             "first token; leave it out")
        ways = [key for key in READ if getattr(self, key) is not None]
        if ways == ["request_rate", "concurrency"]:
            raise ValueError("concurrency: beside request_rate AIPerf lets a request that finds no slot wait until the "
                             "next gap is over, which is not here yet; leave out one of them")
        if len(ways) != 1:
            raise ValueError(f"give one of {', '.join(READ)}; found {' and '.join(ways) or 'none'}")
        self._check_keys()
        if self.way == "user_centric_rate" and self.num_users is None:
            raise ValueError("num_users: missing; user_centric_rate takes it")
        if self.arrival_smoothness is not None and "gamma" not in (self.arrival_pattern, self.warmup_arrival_pattern):
            raise ValueError('arrival_smoothness takes arrival_pattern = "gamma"')
        if self.request_cancellation_delay_s and not self.request_cancellation_rate:
            raise ValueError("request_cancellation_delay_s takes request_cancellation_rate")

    def _check_keys(self) -> None:
        """Raise ValueError for keys of another way, and for keys of warm-ups without warm-ups."""
        usual = {field.name: field.default for field in fields(self)}
        strange = [key for key in dict.fromkeys(key for keys in READ.values() for key in keys)
                   if key not in READ[self.way] and getattr(self, key) != usual[key]]
        if strange:
            raise ValueError(f"{', '.join(strange)}: not read beside {self.way}")
        idle = [key for key in OF_WARMUPS if getattr(self, key) is not None]
        if idle and not self.warms_up:
            raise ValueError(f"{', '.join(idle)}: no warm-up; give warmup_request_count or warmup_duration_s")
        if self.way == "concurrency" and self.warms_up and self.warmup_request_count is None:
            raise ValueError("warmup_request_count: missing; nobody knows how many requests slots take in "
                             "warmup_duration_s")

    @property
    def way(self) -> str:
        """The key that sets how requests are sent."""
        return next(key for key in READ if getattr(self, key) is not None)

    @property
    def warms_up(self) -> bool:
        """Whether there are warm-ups."""
        return self.warmup_request_count is not None or self.warmup_duration_s is not None

    @property
    def says_when(self):
        """The way that replaces [workload.arrival]."""
        return f"has {self.way}, which says when requests come"

    @property
    def requests_per_s(self):
        """The rate."""
        return self.request_rate

    def check(self, bounds):
        """Refuse a grace period without an end."""
        if self.benchmark_grace_period_s is not None and bounds.duration_s is None:
            raise ValueError("benchmark_grace_period_s takes duration_s")

    def fill_load(self, given, bounds):
        """Return slots, users, or requests at times."""
        grace_s = self.benchmark_grace_period_s
        if grace_s is None:
            grace_s = math.inf if bounds.duration_s is None or self.way == "user_centric_rate" else GRACE_S
        if self.way == "user_centric_rate":
            return only(given, grace_s=grace_s, mode="user_rate", users=self.num_users,
                        rate_per_s=self.user_centric_rate)
        if self.way == "request_rate":
            return only(given, grace_s=grace_s, client_delay_s=given.client_delay_s)
        return only(given, grace_s=grace_s, mode="concurrency", concurrency=self.concurrency,
                    ramp_up_s=slots_ramp_s(self.concurrency_ramp_duration_s, self.concurrency))

    def fill_warmup(self, given, bounds):
        """Return the warm-up as a stage."""
        if not self.warms_up:
            return given
        ends = {"num_requests": self.warmup_request_count, "duration_s": self.warmup_duration_s}
        if self.way == "concurrency":
            slots = self.warmup_concurrency or self.concurrency
            ramp_s = self.concurrency_ramp_duration_s if self.warmup_concurrency_ramp_duration_s is None else (
                self.warmup_concurrency_ramp_duration_s)
            return Warmup(stage=Stage(concurrency=slots, ramp_up_s=slots_ramp_s(ramp_s, slots), **ends))
        pattern = self.warmup_arrival_pattern or self.arrival_pattern
        ramp_s = self.request_rate_ramp_duration_s if self.warmup_request_rate_ramp_duration_s is None else (
            self.warmup_request_rate_ramp_duration_s)
        return Warmup(stage=Stage(
            rate_per_s=self.warmup_request_rate or self.request_rate, process=pattern, ramp_up_s=ramp_s,
            cv=(self.arrival_smoothness or 1.0) ** -0.5 if pattern == "gamma" else 1.0, **ends))


def slots_ramp_s(ramp_s: float, slots: int) -> float:
    """Return the `ramp_up_s` with which slot k of n opens at ramp k / (n - 1)."""
    return ramp_s * slots / (slots - 1) if slots > 1 else 0.0


class Aiperf(Own):
    """`aiperf`: requests with lengths of the file, sent as in AIPerf."""

    Parameters = AiperfParameters

    def __init__(self, parameters: AiperfParameters):
        super().__init__(parameters)
        self._given = parameters

    def arrivals_s(self, streams, bounds):
        """Return when requests come at the rate; raise InputErrors for too many."""
        given, generator, (count, duration_s) = self._given, streams.generator("arrivals"), bounds
        if count is None:
            check_number(duration_s * given.request_rate, f"{duration_s:g} s at {given.request_rate:g} requests/s are")

        def unit_gaps(_first: int, number: int) -> np.ndarray:
            if given.arrival_pattern == "constant":
                return np.ones(number)
            shape = given.arrival_smoothness or 1.0
            return generator.standard_exponential(number) if given.arrival_pattern == "poisson" else (
                generator.standard_gamma(shape, number) / shape)

        return stepped_times_s(unit_gaps, given.request_rate, given.request_rate_ramp_duration_s, count,
                               math.inf if duration_s is None else duration_s)

    def draw(self, streams, count):
        """Return the requests, some of which are given up."""
        given, drawn = self._given, super().draw(streams, count)
        if given.way == "user_centric_rate":
            drawn = drawn._replace(notes=(*drawn.notes, (
                "preset aiperf: each request is a conversation of one turn; AIPerf's --user-centric-rate takes two or "
                'more, which type = "sessions" has, with [workload.load] mode = "user_rate".')))
        if not given.request_cancellation_rate:
            return drawn
        is_given_up = 100 * streams.generator("cancellations").random(count) < given.request_cancellation_rate
        return drawn._replace(timeout_ns=np.where(
            is_given_up, round(given.request_cancellation_delay_s * 1e9), MISSING))
