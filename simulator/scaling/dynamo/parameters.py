"""Keys of `dynamo_planner`, their presets, and combinations that are refused."""
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from simulator.scaling.dynamo.forecasts import ForecastKeys, KalmanKeys, why_missing
from simulator.scaling.profile import DecodePoint, Positive, PrefillPoint, check_points

Seconds = Annotated[float, Meta(gt=0, le=1e6)]
Count = Annotated[int, Meta(ge=1, le=2**20, extra={"unit": "replicas"})]
Gpus = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Share = Annotated[float, Meta(ge=0, le=10, extra={"unit": "ratio"})]


class Preset(NamedTuple):
    """Loops, and the times between their decisions."""

    loop: str
    throughput_interval_s: float
    load_interval_s: float


# ai-dynamo/dynamo, planner presets of its sweeper: name -> loops and intervals.
PRESETS = {
    "disabled": Preset("none", 180.0, 5.0),
    "throughput_180_5": Preset("throughput", 180.0, 5.0), "throughput_600_5": Preset("throughput", 600.0, 5.0),
    "load_180_5": Preset("load", 180.0, 5.0), "load_180_10": Preset("load", 180.0, 10.0),
    "hybrid_180_5": Preset("both", 180.0, 5.0), "hybrid_600_5": Preset("both", 600.0, 5.0)}
# name -> share of a bound that one replica less must keep, and completed requests before latencies are estimated.
SENSITIVITIES = {"aggressive": (0.7, 3), "default": (0.8, 5), "conservative": (0.9, 8)}

OF_SLA = ("ttft_ms", "itl_ms", "sensitivity", "prefill_profile", "decode_profile")
OF_THRESHOLDS = ("scale_up_queue_tokens", "scale_down_queue_tokens", "scale_up_kv_frac", "scale_down_kv_frac")
OF_THROUGHPUT = ("throughput_interval_s", "max_change", "forecast", "forecast_log1p", "kalman", "prophet_window")
OF_LOAD = ("load_interval_s", "ttft_ms", "sensitivity")


class DynamoPlannerParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Loops, targets and bounds of Dynamo's planner."""

    target: Annotated[Literal["throughput", "latency", "load", "sla"], Meta(description=(
        "aim: throughput, latency: fixed thresholds of queues and KV caches; load: thresholds that are given; sla: "
        "ttft_ms and itl_ms"))] = "throughput"
    preset: Annotated[Literal[tuple(PRESETS)] | None, Meta(description=(
        "loops and intervals by name, instead of loop, throughput_interval_s and load_interval_s; the numbers in a "
        "name are the intervals of both loops"))] = None
    loop: Annotated[Literal["throughput", "load", "both"] | None, Meta(description=(
        "throughput: replicas by the predicted demand; load: one replica more or less by the present load; both: the "
        "demand is a lower bound for the load loop. Default: that of the preset, else load"))] = None
    throughput_interval_s: Annotated[Seconds | None, Meta(description=(
        "time between two decisions of the throughput loop, a multiple of interval_s. Default: that of the preset, "
        "else 180"))] = None
    load_interval_s: Annotated[Seconds | None, Meta(description=(
        "time between two decisions of the load loop, a multiple of interval_s. Default: that of the preset, else "
        "interval_s"))] = None
    scales: Annotated[Literal["all", "prefill", "decode"], Meta(description=(
        "replicas whose number is decided: all: prefill and decode replicas, or those that serve whole requests; "
        "prefill, decode: only these, the others stay"))] = "all"
    ttft_ms: Annotated[Positive | None, Meta(description=(
        "target sla, load loop: bound on the time to first token. Default: 500"))] = None
    itl_ms: Annotated[Positive | None, Meta(description=(
        "target sla: bound on the time between two tokens. Default: 50"))] = None
    sensitivity: Annotated[Literal[tuple(SENSITIVITIES)] | None, Meta(description=(
        "target sla, load loop: share of the bounds that one replica less must keep, and completed requests that are "
        "needed first: aggressive 70 % and 3, default 80 % and 5, conservative 90 % and 8"))] = None
    scale_up_queue_tokens: Annotated[Annotated[int, Meta(ge=0, le=2**31 - 1)] | None, Meta(description=(
        "target load: queued prompt tokens of a prefill replica from which one is added"))] = None
    scale_down_queue_tokens: Annotated[Annotated[int, Meta(ge=0, le=2**31 - 1)] | None, Meta(description=(
        "target load: queued prompt tokens of all prefill replicas down to which one is removed"))] = None
    scale_up_kv_frac: Annotated[Share | None, Meta(description=(
        "target load: share of a KV cache that running and waiting requests need, from which one is added"))] = None
    scale_down_kv_frac: Annotated[Share | None, Meta(description=(
        "target load: share of all KV caches down to which a replica is removed"))] = None
    max_change: Annotated[Count | None, Meta(description=(
        "replicas of a kind that a decision of the throughput loop adds or removes, at most. Default: 8"))] = None
    min_endpoint: Annotated[Count, Meta(description="replicas of each kind, at least")] = 1
    min_gpus: Annotated[Gpus | None, Meta(description=(
        "accelerators of all replicas, at least; with max_gpus, too, the largest replica may be missing"))] = None
    max_gpus: Annotated[Gpus | None, Meta(description=(
        "accelerators of all replicas, at most; beyond it both kinds are cut in proportion. Default: the limits of the "
        "pools"))] = None
    forecast: Annotated[Literal["constant", "kalman", "arima", "prophet"] | None, Meta(description=(
        "throughput loop: forecast of requests and their lengths; arima and prophet need the extra \"forecast\". "
        "Default: constant, the last value"))] = None
    forecast_log1p: Annotated[bool | None, Meta(description=(
        "throughput loop: forecast ln(1 + value); not with constant. Default: false"))] = None
    kalman: Annotated[KalmanKeys | None, Meta(description="forecast kalman: its variances")] = None
    prophet_window: Annotated[Annotated[int, Meta(ge=5, le=10**6, extra={"unit": "values"})] | None, Meta(description=(
        "forecast prophet: values that it is fitted to, the last ones. Default: 50"))] = None
    prefill_profile: Annotated[tuple[PrefillPoint, ...], Meta(description=(
        "target sla: profile measured on one prefill replica, or on one that serves whole requests"))] = ()
    decode_profile: Annotated[tuple[DecodePoint, ...], Meta(description=(
        "target sla: profile measured on one decode replica; each concurrency at each of the contexts"))] = ()

    def __post_init__(self):
        faults = [*self._unused(), *self._contradictions()]
        if faults:
            raise ValueError("; ".join(faults))
        check_points(self.prefill_profile, self.decode_profile)

    def _unused(self) -> Iterator[str]:
        """Yield keys that would not act."""
        plan = self.plan
        for keys, acts, need in (
                (OF_SLA, self.target == "sla", 'target = "sla"'),
                (OF_THRESHOLDS, self.target == "load", 'target = "load"'),
                (OF_THROUGHPUT, plan.loop in ("throughput", "both"), "the throughput loop"),
                (OF_LOAD, plan.loop in ("load", "both"), "the load loop"),
                (("kalman",), self.forecast == "kalman", 'forecast = "kalman"'),
                (("prophet_window",), self.forecast == "prophet", 'forecast = "prophet"'),
                (("forecast_log1p",), self.forecast not in (None, "constant"), "another forecast than constant"),
                (("loop", "throughput_interval_s", "load_interval_s"), self.preset is None, "no preset")):
            yield from (f"{key}: needs {need}" for key in keys if not acts and getattr(self, key) not in (None, ()))

    def _contradictions(self) -> Iterator[str]:
        if self.plan.loop in ("throughput", "both") and self.target != "sla":
            yield f'target: expected "sla" with the throughput loop, found "{self.target}"'
        if self.target == "sla" and not (self.prefill_profile and self.decode_profile):
            yield 'target: "sla" needs prefill_profile and decode_profile'
        for name in ("queue_tokens", "kv_frac"):
            up, down = (getattr(self, f"scale_{way}_{name}") for way in ("up", "down"))
            if (up is None) != (down is None):
                yield f"scale_up_{name}, scale_down_{name}: give both"
            elif up is not None and down >= up:
                yield f"scale_down_{name}: expected less than scale_up_{name} = {up:g}, found {down:g}"
        if None not in (self.min_gpus, self.max_gpus) and self.min_gpus > self.max_gpus:
            yield f"min_gpus: expected at most max_gpus = {self.max_gpus}, found {self.min_gpus}"
        if why_missing(self.forecast or "constant"):
            yield f"forecast: {why_missing(self.forecast)}"

    @property
    def plan(self) -> Preset:
        """Loops and their intervals."""
        if self.preset is not None:
            return PRESETS[self.preset]
        return Preset(self.loop or "load", self.throughput_interval_s or 180.0, self.load_interval_s or 0.0)

    @property
    def caution(self) -> tuple[float, int]:
        """Share of the bounds for one replica less, and requests needed first."""
        return SENSITIVITIES[self.sensitivity or "default"]

    @property
    def forecasts(self) -> ForecastKeys:
        """The forecast with its keys."""
        return ForecastKeys(self.forecast or "constant", bool(self.forecast_log1p), self.kalman or KalmanKeys(),
                            self.prophet_window or 50, self.plan.throughput_interval_s)

    def misfits(self, interval_s: float, roles: set[str]) -> Iterator[tuple[str, str]]:
        """Yield (key, fault) for keys that do not fit the interval, or the pools."""
        plan, source = self.plan, "preset" if self.preset else None
        for name, loops in (("throughput_interval_s", ("throughput", "both")), ("load_interval_s", ("load", "both"))):
            every_s = getattr(plan, name)
            if plan.loop in loops and round(every_s * 1e9) % round(interval_s * 1e9):
                yield source or name, f"expected a multiple of interval_s = {interval_s:g}, found {name} = {every_s:g}"
        if self.scales != "all" and self.scales not in roles:
            yield "scales", f'there is no pool of role "{self.scales}"'
        if self.target != "load":
            return
        kinds = roles if self.scales == "all" else {self.scales}
        for key, acts in (("scale_up_queue_tokens", "prefill" in kinds), ("scale_up_kv_frac", kinds != {"prefill"})):
            if acts and getattr(self, key) is None:
                yield key, f'needed with target = "load" for pools of role {" and ".join(sorted(kinds))}'
            elif not acts and getattr(self, key) is not None:
                yield key, f'acts on no pool of role {" and ".join(sorted(kinds))}'
