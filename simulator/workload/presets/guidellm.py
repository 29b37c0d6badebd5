"""`guidellm`: GuideLLM's ways to send requests, one run of one of its profiles.

Request i, from 1 on, of a run that begins at 0; R: `rampup_s`, n: `streams`:

- synchronous: when request i - 1 has ended. concurrent: when a request ends and frees a slot; the n slots open at
  0, R / n, ..., R (n - 1) / n. The first slot takes request n there, request 1 here: lengths are drawn independently;
  and GuideLLM keeps a request for each slot that is to open, should requests run out before.
- throughput: R min(1, i / max_concurrency), at most max_concurrency at once.
- constant: i / rate. With R, and m = rate R / 2 requests on the ramp: 0 for i = 1, sqrt(2 i R / rate) up to m, then
  R + (i - m) / rate.
- poisson: after exponential gaps from Python's generator with `random_seed`, as one worker of GuideLLM draws them.

At `duration_s` GuideLLM gives up all running requests. Warm-up and cool-down requests are sent like all others, and
left out of the metrics: here requests that come in the first or end in the last; GuideLLM keeps those across an edge.

Source: vllm-project/guidellm, commit ee7a7745, src/guidellm/scheduler/strategies.py (times), benchmark/schemas/base.py
(TransientPhaseConfig), scheduler/constraints/request.py (ends).
"""
import math
import random
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta
from msgspec.structs import fields, replace

from simulator.domain.load import Count, Rate, Seconds
from simulator.workload.drawing.timing import check_number
from simulator.workload.presets.base import only
from simulator.workload.presets.own import Own, OwnParameters

Phase = Annotated[float, Meta(ge=0, le=9e9, extra={"unit": "share below 1, else seconds or requests"})]
PhaseMode = Literal["prefer_duration", "prefer_requests", "duration", "requests", "both"]
MODE_HELP = ("base of a share, or unit of a number: duration_s or num_requests, both, or the preferred one if it is "
             "given, else the other")

NEEDED = {"synchronous": (), "concurrent": ("streams",), "throughput": (), "constant": ("rate_per_s",),
          "poisson": ("rate_per_s",)}
READ = {                # optional keys, by profile
    "synchronous": (), "concurrent": ("rampup_s",), "throughput": ("max_concurrency", "rampup_s"),
    "constant": ("max_concurrency", "rampup_s"), "poisson": ("max_concurrency", "random_seed")}
OTHERS = {
    "sweep": ("several runs: one with synchronous, one with throughput (max_concurrency = 512), then one with constant "
              "at each of numpy.linspace(s, t, sweep_size - 1)[1:], s and t being their requests per second. Run each: "
              "python -m simulator FILE --set workload.profile=constant --set workload.rate_per_s=R --out DIR"),
    "replay": 'a trace: type = "trace" with format and path, and time_scale'}


class GuidellmParameters(OwnParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A profile, and its keys."""

    profile: Annotated[
        Literal["synchronous", "concurrent", "throughput", "constant", "poisson", "sweep", "replay"], Meta(
            description="the profile of arrivals; sweep and replay are refused, with a replacement")]
    rate_per_s: Annotated[Rate | None, Meta(description="constant, poisson: requests a second")] = None
    streams: Annotated[Count | None, Meta(description="concurrent: slots")] = None
    max_concurrency: Annotated[Count | None, Meta(description="requests at once; absent: there is no limit")] = None
    rampup_s: Annotated[Seconds, Meta(description="time over which slots open, or the rate rises from 0")] = 0.0
    random_seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description=(
        "poisson: the tool's seed, which does not change with the experiment's"))] = 42
    warmup_phase: Annotated[Phase, Meta(description="requests that come in it do not count")] = 0.0
    warmup_phase_mode: Annotated[PhaseMode, Meta(description=MODE_HELP)] = "prefer_duration"
    cooldown_phase: Annotated[Phase, Meta(description="requests that end in it do not count")] = 0.0
    cooldown_phase_mode: Annotated[PhaseMode, Meta(description=MODE_HELP)] = "prefer_duration"

    def __post_init__(self):
        if self.profile in OTHERS:
            raise ValueError(f'profile = "{self.profile}" is {OTHERS[self.profile]}')
        usual = {field.name: field.default for field in fields(self)}
        known, needed = READ[self.profile], NEEDED[self.profile]
        strange = [key for key in ("rate_per_s", "streams", "max_concurrency", "rampup_s", "random_seed")
                   if key not in known + needed and getattr(self, key) != usual[key]]
        if strange:
            raise ValueError(f'profile = "{self.profile}" does not read {", ".join(strange)}')
        if missing := [key for key in needed if getattr(self, key) is None]:
            raise ValueError(f'profile = "{self.profile}" needs {missing[0]}')
        if self.profile == "throughput" and self.rampup_s and self.max_concurrency is None:
            raise ValueError("rampup_s: throughput rises to max_concurrency; give it")
        for phase in ("warmup", "cooldown"):
            if not getattr(self, f"{phase}_phase") and getattr(self, f"{phase}_phase_mode") != "prefer_duration":
                raise ValueError(f"{phase}_phase_mode takes {phase}_phase")

    @property
    def says_when(self):
        """The profile, which replaces [workload.arrival]."""
        return f'has profile = "{self.profile}", which says when requests come'

    @property
    def requests_per_s(self):
        """The rate."""
        return self.rate_per_s

    @property
    def slots(self) -> int | None:
        """Slots of a closed loop; None: the profile is no closed loop."""
        if self.profile == "throughput" and not self.rampup_s:
            return self.max_concurrency             # all are due at once: each comes when a slot is free
        return {"synchronous": 1, "concurrent": self.streams}.get(self.profile)

    def check(self, bounds):
        """Refuse loads without an end, and fewer requests than slots that open one by one."""
        if self.profile == "throughput" and self.slots is None and bounds.num_requests is None:
            raise ValueError('num_requests: missing; profile = "throughput" sends without an end'
                             + ("" if self.rampup_s else " where max_concurrency is absent, too"))
        if self.profile == "concurrent" and self.rampup_s and (bounds.num_requests or math.inf) < self.streams:
            raise ValueError(f"streams: {self.streams} open one by one, and num_requests are {bounds.num_requests}; "
                             "give as many requests or more")
        self._phases(bounds)

    def fill_load(self, given, bounds):
        """Return slots, or a ceiling; requests that run at the end are given up."""
        grace = {} if bounds.duration_s is None else {"grace_s": 0.0}
        if self.slots is not None:
            return only(given, mode="concurrency", concurrency=self.slots, ramp_up_s=self.rampup_s, **grace)
        if self.max_concurrency is not None:
            return only(given, max_in_flight=self.max_concurrency, **grace)
        return only(given, client_delay_s=given.client_delay_s, **grace)

    def fill_measure(self, given, bounds):
        """Return the requests left out; keys of a phase that is not used stay as they are."""
        return replace(given, **self._phases(bounds))

    def _phases(self, bounds) -> dict:
        keys = {}
        for phase in ("warmup", "cooldown"):
            if getattr(self, f"{phase}_phase"):
                seconds, requests = self._phase(phase, bounds)
                keys |= {f"{phase}_s": seconds, f"{phase}_requests": requests}
        return keys

    def _phase(self, phase: str, bounds) -> tuple[float, int]:
        """Return the length of a phase in seconds, and in requests."""
        size, mode = getattr(self, f"{phase}_phase"), getattr(self, f"{phase}_phase_mode")
        share = size < 1
        seconds = requests = None
        if mode != "requests" and bounds.duration_s is not None:
            seconds = size * bounds.duration_s if share else size
        if mode != "duration" and bounds.num_requests is not None:
            requests = int(size * bounds.num_requests if share else size)
        if seconds is None and requests is None:
            needed = {"duration": "duration_s", "requests": "num_requests"}.get(mode, "num_requests or duration_s")
            raise ValueError(f'{phase}_phase: {phase}_phase_mode = "{mode}" takes {needed}')
        if mode == "prefer_duration" and seconds is not None:
            requests = None
        if mode == "prefer_requests" and requests is not None:
            seconds = None
        return seconds or 0.0, requests or 0


class Guidellm(Own):
    """`guidellm`: requests with lengths of the file, sent by a profile."""

    Parameters = GuidellmParameters

    def __init__(self, parameters: GuidellmParameters):
        super().__init__(parameters)
        self._given = parameters

    def arrivals_s(self, streams, bounds):
        """Return when requests come; raise InputErrors for too many."""
        given, (count, duration_s) = self._given, bounds
        if given.rate_per_s is not None and count is None:
            check_number(duration_s * given.rate_per_s, f"{duration_s:g} s at {given.rate_per_s:g} requests/s are")
        if given.profile == "poisson":
            times_s = self._poisson(count, duration_s)
        else:
            number = np.arange(1, 1 + (math.ceil(duration_s * given.rate_per_s) + 1 if count is None else count))
            if given.profile == "throughput":
                times_s = given.rampup_s * np.minimum(1, number / (given.max_concurrency or 1))
            else:
                times_s = constant_s(number, given.rate_per_s, given.rampup_s)
        return times_s if duration_s is None else times_s[:np.searchsorted(times_s, duration_s)]

    def _poisson(self, count: int | None, duration_s: float | None) -> np.ndarray:
        generator, times_s, now_s = random.Random(self._given.random_seed), [], 0.0
        while len(times_s) != count and (duration_s is None or now_s < duration_s):
            now_s += generator.expovariate(self._given.rate_per_s)
            times_s.append(now_s)
        return np.array(times_s)


def constant_s(number: np.ndarray, rate_per_s: float, rampup_s: float) -> np.ndarray:
    """Return when requests come at a rate that is constant after a linear ramp.

    number : int64, of each request, from 1 on.
    """
    if not rampup_s:
        return number / rate_per_s
    on_ramp = rate_per_s * rampup_s / 2
    times_s = np.where(number <= on_ramp, np.sqrt(2 * number * rampup_s / rate_per_s),
                       rampup_s + (number - on_ramp) / rate_per_s)
    return np.where(number == 1, 0.0, times_s)
