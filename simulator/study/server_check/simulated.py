"""A run of the experiment, read at the same times as the server."""
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from simulator.api import Order, run_ordered
from simulator.assembly.context import block_tokens
from simulator.assembly.latency import Readings
from simulator.assembly.requests import requests_of
from simulator.assembly.site import sites_of
from simulator.config.experiment import Experiment
from simulator.config.load import load_experiment
from simulator.errors import InputErrors, KeyFault, faults_of
from simulator.live.metrics import token_bounds
from simulator.results.result import Result
from simulator.study.server_check.changes import NOTHING, Change
from simulator.study.server_check.demand import Demand
from simulator.study.server_check.series import Facts, ServerSeries
from simulator.workload.base import Workload

SAMPLES = 512                   # of the replicas' states in a run
RECORDED = ("output.token_times=true", "output.iterations=true", "output.replica_samples_s=1.0")
OF_REQUESTS = ("workload.", "engine.max_model_len", "model.")          # keys on which requests may depend
MORE = 20                       # requests, and times as many, drawn where some are longer than max_model_len


class Subject:
    """The experiment, and its requests.

    Both are read once for each change.

    file : its TOML file. overrides : texts of --set.
    """

    def __init__(self, file: str, overrides: Sequence[str] = ()):
        self.file, self.overrides, self.readings = file, tuple(overrides), Readings()
        self._experiments: dict[tuple[str, ...], Experiment] = {}
        self._longest_tokens: dict[tuple[str, ...], int] = {}
        self._workloads: dict[tuple, Workload] = {}

    def experiment(self, change: Change) -> Experiment:
        """Return the experiment with a change, with all recorded tables.

        Raises
        ------
        InputErrors
            As `load_experiment`.
        """
        texts = tuple(change.overrides())
        if texts not in self._experiments:
            self._experiments[texts] = load_experiment(self.file, [*self.overrides, *texts, *RECORDED], "--set")
        return self._experiments[texts]

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.experiment(NOTHING).name

    def check(self) -> None:
        """Refuse an experiment that cannot be compared with a server.

        Raises
        ------
        InputErrors
            It cannot be read, or has several pools.
        """
        if self.experiment(NOTHING).pools:
            raise InputErrors([f"{self.file}: pools: expected none for a comparison with a server: metrics of unlike "
                               "pools are not distinguished"])

    def longest_tokens(self, change: Change) -> int:
        """Return the shortest prompt that a server with a change refuses for its length."""
        texts = tuple(change.overrides())
        if texts not in self._longest_tokens:
            self._longest_tokens[texts] = min(site.max_model_len for site in sites_of(self.experiment(change)))
        return self._longest_tokens[texts]

    def workload(self, change: Change, seed: int, count: int) -> Workload:
        """Return requests of the experiment with a change, untouched.

        count : of requests, where the experiment leaves it free; 0: its own.
        """
        experiment = self.experiment(change)
        parameters = experiment.workload.parameters
        if count and getattr(parameters, "num_requests", None) is not None:
            own = replace(experiment.workload, parameters=replace(parameters, num_requests=count))
            experiment = replace(experiment, workload=own)
        keys = tuple(text for text in change.overrides() if text.startswith(OF_REQUESTS))
        key = keys, seed, count
        if key not in self._workloads:
            self._workloads[key] = requests_of(replace(experiment, seed=seed))
        return self._workloads[key].untouched()


class Simulated(NamedTuple):
    """Series of a run.

    planned_per_s : rate of the arrivals that the experiment plans; None: it depends on answers.
    """

    series: ServerSeries
    planned_per_s: float | None


def simulated(subject: Subject, change: Change, seed: int, pace: float, times_s: np.ndarray,
              demand: Demand | None) -> Simulated:
    """Run the experiment and return its series.

    Iterations that take `pace` times as long are a run with arrivals divided by it, and results multiplied by it.

    Parameters
    ----------
    times_s : of readings, after the first.
    demand : observed arrivals; None: the workload's own, as of clients that wait for answers.

    Raises
    ------
    InputErrors
        The experiment cannot run with the change.
    """
    pace = pace * change.pace
    lead_s = 0.0 if demand is None else demand.lead_s
    span_s = lead_s + float(times_s[-1])
    with faults_of(subject.file):
        times = [] if demand is None else demand.times_s(seed)
        workload, planned_per_s = _workload(subject, change, seed, len(times)), None
        experiment = replace(subject.experiment(change), seed=seed, horizon_s=span_s / pace)
        if demand is None and workload.script is None:
            workload.requests["arrival_ns"] = np.round(workload.requests["arrival_ns"] / pace)
        if demand is not None:
            is_taken = workload.requests["prompt_tokens"] < subject.longest_tokens(change)
            planned_per_s = _planned_per_s(workload, is_taken, span_s - lead_s) * change.demand
            _give_times(workload, is_taken, times / pace, span_s / pace)
        every_s = replace(experiment.output, replica_samples_s=span_s / pace / SAMPLES)
        result = run_ordered(Order(replace(experiment, output=every_s), None, False, True, workload, 1,
                                   subject.readings))
    series = _series(result, experiment, subject.longest_tokens(change), (times_s + lead_s) / pace * 1e9, pace)
    return Simulated(series, planned_per_s)


def mean_prompt_tokens(experiment: Experiment) -> float | None:
    """Return the mean prompt of the experiment; None: its arrivals depend on answers."""
    workload = requests_of(experiment)
    return float(workload.requests["prompt_tokens"].mean()) if workload.script is None else None


def _workload(subject: Subject, change: Change, seed: int, needed: int) -> Workload:
    """Return enough requests of the experiment, with lengths as changed."""
    workload = subject.workload(change, seed, needed)
    taken = int((workload.requests["prompt_tokens"] < subject.longest_tokens(change)).sum())
    if taken < needed:
        count = min(needed * (needed + 1) // max(taken, 1), MORE * needed) + MORE
        workload = subject.workload(change, seed, count)
    if change.prompts != 1 and not len(workload.segments):
        scaled = np.round(workload.requests["prompt_tokens"] * change.prompts)
        workload.requests["prompt_tokens"] = np.maximum(scaled, 1)
    if change.answers != 1:
        outputs = np.maximum(np.round(workload.outcomes["output_tokens"] * change.answers), 1)
        workload.outcomes["output_tokens"] = outputs
        workload.demands["max_tokens"] = np.maximum(workload.demands["max_tokens"], outputs)
    return workload


def _planned_per_s(workload: Workload, is_taken: np.ndarray, span_s: float) -> float:
    """Return the rate of arrivals that the experiment plans from its start on."""
    arrivals_s = workload.requests["arrival_ns"] / 1e9
    inside = (arrivals_s >= 0) & (arrivals_s <= span_s) & is_taken
    return float(inside.sum() / (min(span_s, float(arrivals_s.max(initial=0.0))) or span_s))


def _give_times(workload: Workload, is_taken: np.ndarray, times_s: np.ndarray, end_s: float) -> None:
    """Give the requests the observed times; requests left over come after the end."""
    rows = np.flatnonzero(is_taken)
    if len(times_s) > len(rows):
        raise InputErrors([KeyFault(f"workload: expected at least {len(times_s):,} requests, as many as came to the "
                                    f"server, found {len(rows):,}")])
    # A refused request comes with the next accepted one.
    place = np.searchsorted(rows, np.arange(len(workload)))
    times_ns = np.append(np.round(times_s * 1e9), round(end_s * 1e9) + 1).astype(np.int64)
    workload.requests["arrival_ns"] = times_ns[np.minimum(place, len(times_s))]


def _series(result: Result, experiment: Experiment, longest_tokens: int, times_ns: np.ndarray,
            pace: float) -> ServerSeries:
    """Return the readings of a server at these times of the run."""
    values = _gauges(result, times_ns)
    for name, (events_ns, amounts) in _events(result, pace).items():
        order = np.argsort(events_ns, kind="stable")
        sums = np.concatenate([[0.0], np.cumsum(np.asarray(amounts, np.float64)[order])])
        values[name] = sums[np.searchsorted(events_ns[order], times_ns, side="right")]
    bounds = token_bounds(longest_tokens)
    blocks = result.replicas["num_blocks"] + 1          # the null block, which vLLM counts
    facts = Facts(float(blocks.mean()) * block_tokens(experiment), len(result.replicas), bounds[-1],
                  experiment.engine.enable_prefix_caching)
    return ServerSeries(times_ns * pace / 1e9, values, facts)


def _gauges(result: Result, times_ns: np.ndarray) -> dict[str, np.ndarray]:
    samples, rows = result.replica_samples, max(len(result.replicas), 1)
    found = {}
    at_ns = np.unique(samples["time_ns"])
    place = np.searchsorted(at_ns, samples["time_ns"])
    shown = np.clip(np.searchsorted(at_ns, times_ns, side="right") - 1, 0, None)
    for name, column in (("running", "running"), ("waiting", "waiting"), ("kv_usage", "used_blocks")):
        found[name] = np.bincount(place, samples[column], len(at_ns))[shown]
    found["kv_usage"] /= max(float(result.replicas["num_blocks"].mean()) * rows, 1.0)
    return found


def _events(result: Result, pace: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return times and amounts by which counters rise, of the stretched run."""
    requests, iterations = result.requests, result.iterations
    offsets, token_ns = result.token_times
    counts = np.diff(offsets)
    first = requests[counts > 0]
    first_ns, firsts = token_ns[offsets[:-1][counts > 0]], np.ones(len(token_ns), bool)
    firsts[offsets[:-1][counts > 0]] = False
    gaps_ns = np.diff(token_ns, prepend=0)[firsts]
    ended = requests[requests["completed_ns"] >= 0]
    begun = requests[requests["scheduled_ns"] >= 0]
    head = iterations[iterations["stage"] == 0]
    waits_s = (begun["scheduled_ns"] - begun["enqueued_ns"]) * pace / 1e9
    ones = np.ones_like
    step_ns = head["start_ns"] + head["duration_ns"]
    return {
        "prompt_tokens": (first_ns, first["prompt_tokens"]), "output_tokens": (token_ns, ones(token_ns)),
        "queries": (begun["scheduled_ns"], begun["prompt_tokens"]),
        "hits": (begun["scheduled_ns"], np.maximum(begun["cached_tokens"], 0)),
        "preemptions": (ended["completed_ns"], ended["preemptions"]),
        "ended": (ended["completed_ns"], ones(ended["completed_ns"])),
        "first_tokens": (first_ns, ones(first_ns)), "ttft_s": (first_ns, (first_ns - first["arrival_ns"]) * pace / 1e9),
        "gaps": (token_ns[firsts], ones(gaps_ns)), "gap_s": (token_ns[firsts], gaps_ns * pace / 1e9),
        "queued": (ended["completed_ns"], ones(ended["completed_ns"])),
        "queue_s": (ended["completed_ns"], waits_s[begun["completed_ns"] >= 0]),
        "prompts": (ended["completed_ns"], ones(ended["completed_ns"])),
        "prompt_lengths": (ended["completed_ns"], ended["prompt_tokens"]),
        "answers": (ended["completed_ns"], ones(ended["completed_ns"])),
        "answer_lengths": (ended["completed_ns"], ended["output_tokens"]),
        "steps": (step_ns, ones(step_ns)), "step_tokens": (step_ns, head["prefill_tokens"] + head["decode_tokens"])}
