"""Requests that come when they are due and go when they have ended: [output] streamed."""
import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from simulator import registry
from simulator.assembly.parts.base import Fault, Part
from simulator.config.conflicts import Conflict, Feature, Place, without
from simulator.config.parts import keys_in
from simulator.config.words import show
from simulator.core.quantile_sketch import RELATIVE_ERROR
from simulator.domain.load import Load, Measure, Warmup
from simulator.errors import InputErrors, KeyFault
from simulator.results.streamed import StreamedTotals
from simulator.results.summary_keys import keys_of
from simulator.workload.chunks import CAN_GIVE_BACK
from simulator.workload.types.drawn_chunks import LENGTHS, PAUSES, PROCESSES, RATES
from simulator.workload.types.trace_chunks import FORMATS

KEY = "output.streamed"
# Routers and scorers that keep numbers of replicas alone, and of requests in flight.
ROUTERS = ("round_robin", "random", "least_loaded", "power_of_two", "weighted", "lor", "session", "consistent_hash",
           "vllm_dp", "waiting_limit", "weighted_random", "always_busiest", "least_busy_time", "least_throughput",
           "least_latency")
SCORERS = ("queue-depth", "kv-utilization", "running-requests", "active-requests", "load-balance", "load-aware",
           "token-load", "vllm-dp")
# Keys of a closed loop of requests.
SLOTS = ("mode", "concurrency", "think_time_s", "think_time_from", "client_delay_s", "ramp_up_s")
STREAMED = Feature("requests given up when they end", KEY, False)
GIVEN_UP = "rows are given up when their requests end"
AT_ONCE = "their requests are drawn together"
OPEN = "requests are drawn for an open loop, or for slots"
NOT_SUMMED = "its numbers are not summed up request by request"
WAY = "the way of each request to its replica is kept to the end of the run"
VISITS = "the visits of each request are kept to the end of the run"


def _drawn(name: str):
    """Return the function place -> a key of the drawn shape of requests; None: the workload has none."""
    return lambda place: getattr(getattr(place.workload.parameters, "parameters", None), name, None)


def _distribution(name: str):
    """Return the function place -> the distribution of a length."""
    return lambda place: getattr(_drawn(name)(place), "distribution", None)


def _other(name: str, usual: Any):
    """Return the function place -> the keys of a table of [workload] that are not the usual ones."""
    def value(place: Place):
        given = getattr(place.workload, name)
        return ", ".join(key for key in given.__struct_fields__ if getattr(given, key) != getattr(usual, key))

    return value


def _is_loop(place: Place) -> bool:
    """Return whether slots send the requests."""
    return place.workload.load.mode == "concurrency"


def _loads(place: Place) -> str:
    """Return the keys of [workload.load] that are not the usual ones, or of slots for requests."""
    load, usual = place.workload.load, Load()
    return ", ".join(key for key in load.__struct_fields__ if getattr(load, key) != getattr(usual, key)
                     and not (key in SLOTS and _is_loop(place)))


def _pauses(place: Place) -> str | None:
    """Return the distribution of pauses of slots; None: they are alike, or there are none."""
    return getattr(place.workload.load.think_time_s, "distribution", None)


def _given(*keys: str):
    """Return the function place -> a drawn workload has one of the keys; True: the workload is not drawn."""
    return lambda place: place.workload.type != "synthetic" or any(
        getattr(place.workload.parameters, key, None) is not None for key in keys)


def _of_trace(key: str):
    """Return the function place -> a key of a trace; None: the workload is none."""
    return lambda place: place.workload.type == "trace" and getattr(
        place.workload.parameters, key, getattr(place.workload.parameters.parameters, key, None))


def _scorers(place: Place) -> str:
    """Return the names of scorers that are not among `SCORERS`."""
    routing = place.cluster.routing
    chosen = registry.load("router", routing.policy)
    names = [each.name for each in routing.scorers] or [
        each[0] for each in chosen.usual_scorers(routing.parameters)]
    return ", ".join(name for name in names if name not in SCORERS)


def _hashed_key(place: Place) -> str | None:
    routing = place.cluster.routing
    return getattr(routing.parameters, "key", None) if routing.policy == "consistent_hash" else None


NUMBERED = Feature("numbers of requests", "workload.num_requests", value=lambda place: _given(
    "num_requests", *([] if _is_loop(place) else ["duration_s"]))(place))
ARRIVING = Feature("arrival processes", "workload.arrival", value=lambda place: _is_loop(place) or _given(
    "arrival", "rate")(place))
LENGTH_KEYS = ("prompt_tokens", "output_tokens")

# what does not go with it -> why
ROWS = {
    Feature("tables of requests", "output.requests", False): GIVEN_UP,
    Feature("tables of iterations", "output.iterations", False): "the table grows with the number of requests",
    Feature("times of tokens", "output.token_times", False): "the table grows with the number of requests",
    Feature("Chrome traces", "output.chrome_trace", False): GIVEN_UP,
    Feature("Vidur's tables", "output.vidur_csv", False): GIVEN_UP,
    Feature("workloads of other types", "workload.type", ("synthetic", "trace")): "its requests are drawn together",
    Feature("trace formats without parts", "workload.format", FORMATS, value=_of_trace("format")): (
        "it is read as a whole: its requests wait for others, or share text"),
    Feature("bad rows of a trace", "workload.on_bad_row", "refuse", value=_of_trace("on_bad_row")): (
        "the rows of a trace are counted before the run"),
    Feature("presets", "workload.preset", "none"): AT_ONCE,
    Feature("rates that place requests", "workload.rate.kind", RATES): AT_ONCE,
    Feature("ramps of arrivals", "workload.arrival.ramp"): AT_ONCE,
    Feature("stretched arrivals", "workload.arrival.rescale_to_rate", False): AT_ONCE,
    Feature("arrivals that are not drawn one by one", "workload.arrival.process", PROCESSES): AT_ONCE,
    **{Feature("lengths that are not drawn one by one", f"workload.{name}.distribution", LENGTHS,
               value=_distribution(name)): AT_ONCE for name in LENGTH_KEYS},
    Feature("loads but given arrivals and slots for requests", "workload.load", value=_loads): OPEN,
    Feature("pauses that are not drawn one by one", "workload.load.think_time_s", PAUSES, value=_pauses): AT_ONCE,
    Feature("measured parts", "workload.measure", value=_other("measure", Measure())): (
        "it depends on the end of the run which requests are measured"),
    Feature("requests that warm up", "workload.warmup", value=_other("warmup", Warmup())): OPEN,
    Feature("predicted lengths", "workload.output_knowledge.predictor", "none"): AT_ONCE,
    Feature("clients that wait on", "workload.cancel_at_deadline", True): "no drawn request has a deadline",
    Feature("images", "workload.images"): AT_ONCE,
    Feature("videos", "workload.videos"): AT_ONCE,
    Feature("several pools", "pools"): NOT_SUMMED,
    Feature("admission policies", "cluster.admission.policy", "always"): WAY,
    Feature("delays of admission", "cluster.admission.latency_s", 0.0): WAY,
    Feature("delays of routing", "cluster.routing.latency_s", 0.0): WAY,
    Feature("routing again", "cluster.routing.retry_timeout_s", 0.0): WAY,
    Feature("routers with lists of requests", "cluster.routing.policy", ROUTERS): "a list has a place for each request",
    Feature("scorers with lists of requests", "cluster.routing.scorers", value=_scorers): (
        f"{', '.join(SCORERS)} keep no list of requests"),
    Feature("hashes of prompts", "cluster.routing.key", "session", value=_hashed_key): (
        "requests have no other label, and share no text"),
    Feature("schedulers", "engine.scheduler", "vllm"): "it may read requests that have ended",
    Feature("orders of the waiting queue", "engine.policy", "fcfs"): "its heap has a place for each request",
    Feature("pooling", "engine.task", "generate"): NOT_SUMMED,
    Feature("structured outputs", "engine.structured_outputs"): AT_ONCE,
    Feature("encoders of images", "engine.encoder"): NOT_SUMMED,
    Feature("limits of API servers on requests", "engine.max_num_queued_reqs"): VISITS,
    Feature("limits of API servers on prompt tokens", "engine.max_num_queued_tokens"): VISITS,
    Feature("front ends", "latency.host.front_end_us", 0.0): VISITS,
    Feature("front ends for prompts", "latency.host.front_end_per_prompt_token_us", 0.0): VISITS,
    Feature("intervals", "latency.uncertainty", False): "the same requests are served again",
}


class Streamed(Part):
    """Rows of requests that live as long as their requests."""

    keys = {KEY: Annotated[bool, Meta(description=(
        "draw requests when they are due, and keep sums and sketches of those that have ended, so that the memory of a "
        "run depends on the requests in flight; percentiles then have a relative error, which the summary names"))]}
    conflicts = [*(Conflict(feature, STREAMED, why) for feature, why in ROWS.items()),
                 *(Conflict(STREAMED, without(feature, phrase), lambda place, why=why: why if place.workload else "",
                            why) for feature, phrase, why in (
                     (NUMBERED, "workload.num_requests, or duration_s without slots",
                      "the number of requests must be known"),
                     (ARRIVING, "[workload.arrival] or [workload.rate]", OPEN)))]
    summary_before = "latency"
    summary_keys = keys_of(quantiles__relative_error="largest error of the percentiles of this file, as a share of "
                           "their value; a run with [output] streamed")

    @classmethod
    def faults(cls, sections: Mapping[str, Any], missing: object) -> Iterable[Fault]:
        """Yield the keys of other parts, which do not sum up their numbers."""
        if sections["output"] is missing or not sections["output"].streamed:
            return
        for key in keys_in(sections, missing):
            if key not in (KEY, "output.requests_every"):
                path = key.partition("=")[0].replace("[]", "")
                yield tuple(path.split(".")), f"expected none with {KEY} = {show(True)}: {NOT_SUMMED}"

    def meet(self, prepared) -> None:
        """Let the results take the requests; refuse requests that were drawn before."""
        workload = prepared.workload
        if not CAN_GIVE_BACK:
            raise InputErrors([KeyFault(f"{KEY}: expected false on this system: Python has no way to give memory back "
                                        "there, mmap.madvise")])
        if any(pool.host.front_end_us + pool.host.front_end_per_prompt_token_us > 0 for pool in prepared.pools):
            raise InputErrors([KeyFault(f"latency.host.front_end_us: expected 0 with {KEY} = true: {VISITS}")])
        if workload.chunks is None:
            raise InputErrors([KeyFault(f"{KEY}: expected false here: the requests were drawn before the run")])
        workload.chunks.taker = StreamedTotals(
            self.experiment.slo, len(workload), sum(pool.places for pool in prepared.pools))
        if not math.isinf(self.experiment.horizon_s):
            workload.chunks.horizon_ns = round(self.experiment.horizon_s * 1e9)

    def plan(self, plan, sink):
        return replace(plan, threads=1)

    def summary(self, run, summary: dict) -> dict:
        return {"quantiles": {"relative_error": RELATIVE_ERROR}, "diagnosis": [
            f"percentiles are of histograms, and within {RELATIVE_ERROR:.2%} of those of all samples; batch means of "
            "the verdict are of stretches; [output] streamed keeps no request that has ended"]}
