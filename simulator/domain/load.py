"""How the requests of a workload come, and which of them count: what an experiment says of it."""
import math
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

MAX_S = 9e9             # 285 years
MAX_COUNT = 2**31 - 1
Seconds = Annotated[float, Meta(ge=0, le=MAX_S)]
Positive = Annotated[float, Meta(gt=0, le=MAX_S)]
Count = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
Rate = Annotated[float, Meta(gt=0, le=1e9)]
Share = Annotated[int, Meta(ge=0, le=MAX_COUNT)]


class TimeChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A time in seconds; the keys of the distribution stand in the same table."""

    distribution: Annotated[str, Meta(description="what draws the times")]
    parameters: Annotated[Any, Meta(extra={"kind": "time_distribution"})]


PLACED = ("even_random", "poisson_seconds")     # processes that place so many requests, whatever the last one's time


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several loads that follow each other, one of [[workload.load.stages]].

    A rate with `duration_s` lasts so long, or until the last of `num_requests` has come if that is earlier. With
    `concurrency` or `drain` the next one begins when all requests have ended, too. A stage may have no request.
    """

    concurrency: Annotated[Count | None, Meta(description=(
        "slots; each lets a request come when its last one ended"))] = None
    rate_per_s: Annotated[Rate | None, Meta(description="requests a second instead, whatever becomes of them")] = None
    process: Annotated[Literal["poisson", "constant", "gamma", "even_random", "poisson_seconds"], Meta(description=(
        "of a rate: what draws the gaps; even_random: exponential ones, stretched so that the last of int(rate x "
        "duration) requests comes at the end of the stage; poisson_seconds: a Poisson number of requests each second, "
        "the last at its end, and so many seconds as these requests take; both as inference-perf"))] = "poisson"
    cv: Annotated[float, Meta(ge=0.01, le=100, description="gamma: coefficient of variation of the gaps")] = 1.0
    ramp_up_s: Annotated[Seconds, Meta(description=(
        "slot k of n opens after k / n of this; of a rate: it rises in steps of 0.1 s, linearly from what the first "
        "step is of this time, as AIPerf's"))] = 0.0
    max_in_flight: Annotated[Share, Meta(description=(
        "of a rate: requests at once; who comes meanwhile waits at the client, in order; 0: no ceiling"))] = 0
    drain: Annotated[bool, Meta(description=(
        "of a rate: the next stage begins when all of this one have ended, as with concurrency"))] = False
    num_requests: Annotated[Count | None, Meta(description="requests of the stage")] = None
    duration_s: Annotated[Positive | None, Meta(description=(
        "nobody comes so long after its beginning, or later, and the next stage of a rate begins then; of even_random "
        "and poisson_seconds: what it says there"
    ))] = None
    interval_s: Annotated[Seconds, Meta(description="pause before it begins")] = 0.0

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
    """Which requests and what time count in the summary, [workload.measure].

    All are simulated, and are in the request table. Latencies are those of the requests that count, throughputs, money
    and energy those of the window of time.
    """

    warmup_requests: Annotated[Share, Meta(description="so many that come first do not")] = 0
    warmup_s: Annotated[Seconds, Meta(description="those that come before do not")] = 0.0
    cooldown_requests: Annotated[Share, Meta(description="so many that come last do not")] = 0
    cooldown_s: Annotated[Seconds, Meta(description=(
        "those that are complete in so long before the last completion do not"))] = 0.0


class Warmup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is sent before all others, [workload.warmup].

    It leaves caches warm and is not measured. The others come when it has ended: the clock does not begin anew, so that
    their first arrival is not at 0.
    """

    copies_of_first: Annotated[Share, Meta(description=(
        "requests with the prompt of the first, under the same concurrency"))] = 0
    stage: Annotated[Stage | None, Meta(description=(
        "drawn requests of their own, besides those of the workload, in a load of their own"))] = None
    primers: Annotated[Literal["none", "first_turn", "last_turn", "one_token"], Meta(description=(
        "requests of the workload itself that are sent before: the first turn of each session, under the same "
        "concurrency; with snapshot, the last request of each conversation before the point at which its lane begins; "
        "that, with an output of one token"))] = "none"
    requests_per_lane: Annotated[Share, Meta(description=(
        "after last_turn or one_token: requests of one token with the prompts of a lane's primers, in turn"))] = 0

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
    """How requests come, [workload.load].

    A slot lets a request come when its last one has ended.
    """

    mode: Annotated[Literal["timestamps", "concurrency", "user_rate", "lanes", "stages"], Meta(description=(
        "at the times of the workload; by a number of slots; by users who send so often; whole plays by lanes; one "
        "stage after the other"))] = "timestamps"
    concurrency: Annotated[Count | None, Meta(description="slots")] = None
    unit: Annotated[Literal["request", "session"], Meta(description=(
        "what holds a slot: a request, or a session from its first request to the end of its last"))] = "request"
    think_time_s: Annotated[Seconds | TimeChoice, Meta(description=(
        "a slot rests so long after the end of what held it"))] = 0.0
    think_time_from: Annotated[Literal["end", "arrival", "arrival_mean"], Meta(description=(
        "think_time_s counts: from an end; from the arrival of what ended, so that a slot rests for what is left of "
        "it; from an end, with a mean that is shorter by the time from arrival to end"))] = "end"
    sessions_per_slot: Annotated[Count | None, Meta(description=(
        "a slot has so many sessions, of which it serves one request at a time: a new one first, then who has waited "
        "longest; it rests after each request; absent: a slot is held by one session"))] = None
    requests_per_slot: Annotated[Count | None, Meta(description=(
        "a slot with sessions_per_slot ends after so many"))] = None
    ends_with: Annotated[Literal["last_session", "each_slot", "first_slot"], Meta(description=(
        "of slots with sessions_per_slot: each goes on with the sessions that it has when there is no new one; leaves "
        "them then; and with the first that does, has sent requests_per_slot, or gave up waiting, nobody comes any more"
        ))] = "last_session"
    client_delay_s: Annotated[Seconds | None, Meta(description=(
        "from each end to what the client sends because of it; 0: it is in the iteration that begins in that instant, "
        "which no real client achieves; default: 0, or what the clients of [workload] preset take"))] = None
    ramp_up_s: Annotated[Seconds, Meta(description="slot k of n opens after k / n of this")] = 0.0
    max_in_flight: Annotated[Share, Meta(description=(
        "requests at once; who comes meanwhile waits at the client, in order; 0: no ceiling"))] = 0
    grace_s: Annotated[float, Meta(ge=0, description=(
        "the clients of what still runs so long after duration_s, of the workload or of its stage, give up; inf: "
        "never"), extra={"inf": True})] = math.inf
    users: Annotated[Count | None, Meta(description="who send one request after the other")] = None
    rate_per_s: Annotated[Rate | None, Meta(description=(
        "of all users together; one whose answer comes late sends the next at once"))] = None
    lanes: Annotated[Count | None, Meta(description=(
        "plays at once; a lane is busy until its whole play is over"))] = None
    assign: Annotated[Literal["static", "dynamic"], Meta(description=(
        "play i runs in lane i mod lanes; the next play runs in the first lane that is free"))] = "static"
    tree_idle_cap_s: Annotated[float, Meta(ge=0, description=(
        "a play of which nothing runs goes on after so long at most"), extra={"inf": True})] = math.inf
    snapshot: Annotated[Literal["none", "uniform"], Meta(description=(
        "uniform: the first play of each lane begins at a random point of its recorded length; what comes before that "
        "is not sent"))] = "none"
    recycle: Annotated[bool, Meta(description=(
        "when all plays have run they come again, with new texts, until duration_s or max_requests"))] = False
    private_prefix_tokens: Annotated[Share, Meta(description=(
        "tokens in front of all prompts of a play that are its own, also when it comes again: plays share nothing"
        ), extra={"unit": "tokens"})] = 0
    stages: Annotated[tuple[Stage, ...], Meta(description="loads that follow each other")] = ()

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
        """Return how many requests, users or plays there are at once.

        None: nothing bounds them, or stages do.
        """
        return self.concurrency or self.max_in_flight or self.users or self.lanes or None
