"""Schemas of [workload.load], [workload.measure] and [workload.warmup]: arrivals, and the requests that count."""
import math
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

MAX_S = 9e9             # 285 years
MAX_COUNT = 2**31 - 1
Seconds = Annotated[float, Meta(ge=0, le=MAX_S)]
Positive = Annotated[float, Meta(gt=0, le=MAX_S)]
Count = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
Rate = Annotated[float, Meta(ge=1e-12, le=1e9)]           # one in 31,700 years
Share = Annotated[int, Meta(ge=0, le=MAX_COUNT)]


class TimeChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A time in seconds; the keys of the distribution are in the same table."""

    distribution: Annotated[str, Meta(description="distribution of the times")]
    parameters: Annotated[Any, Meta(extra={"kind": "time_distribution"})]


PLACED = ("even_random", "poisson_seconds")     # processes that place a given number of requests in the stage


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several consecutive loads, one of [[workload.load.stages]].

    A rate with `duration_s` ends after that time, or at the last of `num_requests` arrivals if that is earlier. With
    `concurrency` or `drain` the next stage begins when all requests have ended, too. A stage may have no request.
    """

    concurrency: Annotated[Count | None, Meta(description=(
        "slots; each sends a request when its last one has ended"))] = None
    rate_per_s: Annotated[Rate | None, Meta(description=(
        "requests per second, in place of concurrency; independent of the progress of requests"))] = None
    process: Annotated[Literal["poisson", "constant", "gamma", "even_random", "poisson_seconds"], Meta(description=(
        "with a rate: distribution of the gaps; even_random: exponential gaps, stretched so that the last of int(rate "
        "x duration) requests arrives at the end of the stage; poisson_seconds: a Poisson number of requests each "
        "second, the last at its end, for as many seconds as the requests take; both as inference-perf"))] = "poisson"
    cv: Annotated[float, Meta(ge=0.01, le=100, description="gamma: coefficient of variation of the gaps")] = 1.0
    ramp_up_s: Annotated[Seconds, Meta(description=(
        "slot k of n opens after k / n of this; with a rate: the rate rises linearly in steps of 0.1 s, the first step "
        "being its share of this time, as AIPerf's"))] = 0.0
    max_in_flight: Annotated[Share, Meta(description=(
        "with a rate: requests in flight; a request above the ceiling waits at the client, in order; 0: no "
        "ceiling"))] = 0
    drain: Annotated[bool, Meta(description=(
        "with a rate: the next stage begins when all requests of this one have ended, as with concurrency"))] = False
    num_requests: Annotated[Count | None, Meta(description="number of requests of the stage")] = None
    duration_s: Annotated[Positive | None, Meta(description=(
        "no request arrives at this time after the beginning or later, and the next stage of a rate begins then; with "
        "even_random and poisson_seconds: see process"
    ))] = None
    interval_s: Annotated[Seconds, Meta(description="pause before the stage begins")] = 0.0

    def __post_init__(self):
        if (self.concurrency is None) == (self.rate_per_s is None):
            raise ValueError("give either concurrency or rate_per_s")
        if self.num_requests is None and self.duration_s is None:
            raise ValueError("give num_requests, duration_s, or both")
        if self.concurrency is not None and (
                self.process != "poisson" or self.cv != 1.0 or self.max_in_flight or self.drain):
            raise ValueError("process, cv, max_in_flight and drain are of a stage with rate_per_s")
        if self.ramp_up_s and self.process in PLACED:
            raise ValueError(f'process = "{self.process}" has no ramp_up_s')
        if self.cv != 1.0 and self.process != "gamma":
            raise ValueError('cv takes process = "gamma"')


class Measure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests and time that count in the summary, [workload.measure].

    All requests are simulated, and are in the request table. Latencies are those of the requests that count;
    throughputs, money and energy are those of the time window.
    """

    warmup_requests: Annotated[Share, Meta(description="number of requests, first to arrive, that do not count")] = 0
    warmup_s: Annotated[Seconds, Meta(description="requests that arrive before this time do not count")] = 0.0
    cooldown_requests: Annotated[Share, Meta(description="number of requests, last to arrive, that do not count")] = 0
    cooldown_s: Annotated[Seconds, Meta(description=(
        "requests that complete within this time before the last completion do not count"))] = 0.0


class Warmup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests sent before all others, [workload.warmup].

    They warm the caches and are not measured. The other requests arrive when the warm-up has ended: the clock is not
    reset, so that their first arrival is not at 0.
    """

    copies_of_first: Annotated[Share, Meta(description=(
        "requests with the prompt of the first request, under the same concurrency"))] = 0
    stage: Annotated[Stage | None, Meta(description=(
        "requests drawn for the warm-up, in addition to those of the workload, with their own load"))] = None
    primers: Annotated[Literal["none", "first_turn", "last_turn", "one_token"], Meta(description=(
        "requests of the workload that are sent first. first_turn: the first turn of each session, under the same "
        "concurrency; last_turn, with snapshot: the last request of each conversation before the point at which its "
        "lane begins; one_token: as last_turn, with an output of one token"))] = "none"
    requests_per_lane: Annotated[Share, Meta(description=(
        "after last_turn or one_token: requests of one token with the prompts of a lane's primers, cyclically"))] = 0

    def __post_init__(self):
        if self.requests_per_lane and self.primers not in ("last_turn", "one_token"):
            raise ValueError('requests_per_lane takes primers = "last_turn" or "one_token"')
        if self.stage is None:
            return
        if self.copies_of_first or self.primers != "none":
            raise ValueError("give one of copies_of_first, primers and stage")
        if self.stage.concurrency is not None and self.stage.num_requests is None:
            raise ValueError("stage.num_requests: missing; nobody knows how many requests slots take in duration_s")
        if self.stage.drain:
            raise ValueError("stage.drain: the others come when all of it have ended, anyway; leave it out")


OF_MODE = {             # keys that only some modes read
    "concurrency": ("concurrency",), "unit": ("concurrency",), "ramp_up_s": ("concurrency", "lanes"),
    "think_time_s": ("concurrency", "lanes"), "think_time_from": ("concurrency",),
    "sessions_per_slot": ("concurrency",), "requests_per_slot": ("concurrency",), "ends_with": ("concurrency",),
    "max_in_flight": ("timestamps",), "users": ("user_rate",),
    "rate_per_s": ("user_rate",), "lanes": ("lanes",), "assign": ("lanes",),
    "snapshot": ("lanes",), "recycle": ("lanes",), "stages": ("stages",)}
NEEDED = {"concurrency": ("concurrency",), "user_rate": ("users", "rate_per_s"), "lanes": ("lanes",),
          "stages": ("stages",)}


class Load(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arrival of requests, [workload.load].

    A slot sends a request when its last one has ended.
    """

    mode: Annotated[Literal["timestamps", "concurrency", "user_rate", "lanes", "stages"], Meta(description=(
        "timestamps: at the times of the workload; concurrency: by a number of slots; user_rate: by users who send at "
        "a given rate; lanes: whole plays by lanes; stages: one stage after the other"))] = "timestamps"
    concurrency: Annotated[Count | None, Meta(description="number of slots")] = None
    unit: Annotated[Literal["request", "session"], Meta(description=(
        "unit that holds a slot: a request, or a session from its first request to the end of its last"))] = "request"
    think_time_s: Annotated[Seconds | TimeChoice, Meta(description=(
        "pause of a slot after the end of the unit that held it"))] = 0.0
    think_time_from: Annotated[Literal["end", "arrival", "arrival_mean"], Meta(description=(
        "start of think_time_s: end: the end of the unit; arrival: its arrival, so that a slot pauses for the "
        "remainder; arrival_mean: the end, with a mean that is shorter by the time from arrival to end"))] = "end"
    sessions_per_slot: Annotated[Count | None, Meta(description=(
        "sessions of a slot, of which it serves one request at a time: a new session first, then the one that has "
        "waited longest; it pauses after each request; absent: a slot is held by one session"))] = None
    requests_per_slot: Annotated[Count | None, Meta(description=(
        "requests after which a slot with sessions_per_slot ends"))] = None
    ends_with: Annotated[Literal["last_session", "each_slot", "first_slot"], Meta(description=(
        "slots with sessions_per_slot, when there is no new session: last_session: each slot finishes the sessions "
        "that it has; each_slot: it leaves them; first_slot: all arrivals stop once a slot has no new session, has "
        "sent requests_per_slot, or gave up waiting"
        ))] = "last_session"
    client_delay_s: Annotated[Seconds | None, Meta(description=(
        "from an end to the request that the client sends because of it; 0: the request is in the iteration that "
        "begins at that instant, which no real client achieves; default: 0, or the delay of the clients of [workload] "
        "preset"))] = None
    ramp_up_s: Annotated[Seconds, Meta(description="slot k of n opens after k / n of this")] = 0.0
    max_in_flight: Annotated[Share, Meta(description=(
        "requests in flight; a request above the ceiling waits at the client, in order; 0: no ceiling"))] = 0
    grace_s: Annotated[float, Meta(ge=0, description=(
        "clients of requests that still run this long after duration_s, of the workload or of its stage, give up; inf: "
        "never"), extra={"inf": True})] = math.inf
    users: Annotated[Count | None, Meta(description="number of users; each sends one request after the other")] = None
    rate_per_s: Annotated[Rate | None, Meta(description=(
        "requests per second of all users together; a user whose answer is late sends the next request at "
        "once"))] = None
    lanes: Annotated[Count | None, Meta(description=(
        "plays in progress; a lane is busy until its whole play is over"))] = None
    assign: Annotated[Literal["static", "dynamic"], Meta(description=(
        "static: play i runs in lane i mod lanes; dynamic: the next play runs in the first lane that is "
        "free"))] = "static"
    tree_idle_cap_s: Annotated[float, Meta(ge=0, description=(
        "longest pause of a play without a running request"), extra={"inf": True})] = math.inf
    snapshot: Annotated[Literal["none", "uniform"], Meta(description=(
        "uniform: the first play of each lane begins at a random point of its recorded length; earlier requests are "
        "not sent"))] = "none"
    recycle: Annotated[bool, Meta(description=(
        "when all plays have run they are repeated, with new texts, until duration_s or max_requests"))] = False
    private_prefix_tokens: Annotated[Share, Meta(description=(
        "tokens in front of all prompts of a play, unique to it, and new when it is repeated: plays share nothing"
        ), extra={"unit": "tokens"})] = 0
    stages: Annotated[tuple[Stage, ...], Meta(description="consecutive loads")] = ()

    def __post_init__(self):
        defaults = {field.name: field.default for field in msgspec.structs.fields(self)}
        strangers = [key for key, modes in OF_MODE.items()
                     if self.mode not in modes and getattr(self, key) != defaults[key]]
        if strangers:
            raise ValueError(f'mode = "{self.mode}" does not read {", ".join(strangers)}')
        missing = [key for key in NEEDED.get(self.mode, ()) if not getattr(self, key)]
        if missing:
            raise ValueError(f'mode = "{self.mode}" needs {" and ".join(missing)}')
        if self.sessions_per_slot is not None and self.unit != "session":
            raise ValueError('sessions_per_slot takes unit = "session"')
        if self.sessions_per_slot is None and (self.requests_per_slot is not None or self.ends_with != "last_session"):
            raise ValueError("requests_per_slot and ends_with take sessions_per_slot")
        if self.think_time_from != "end" and self.think_time_s == 0.0:
            raise ValueError("think_time_from takes think_time_s")
        if self.think_time_from != "end" and self.unit == "session" and self.sessions_per_slot is None:
            raise ValueError('think_time_from is of requests, unit = "session" takes sessions_per_slot with it')

    @property
    def most_at_once(self) -> int | None:
        """Return the maximum number of concurrent requests, users or plays.

        None: unbounded, or bounded by stages.
        """
        return self.concurrency or self.max_in_flight or self.users or self.lanes or None
