"""Runs of an experiment as observations of its bounds: the connection of a search to a Laboratory."""
import math
from collections.abc import Sequence
from typing import Any

from simulator.study.capacity.bounds import Bounds, check_keys
from simulator.study.capacity.thin import is_missed_for_sure, metrics_of, requests_for
from simulator.study.capacity.varied import Varied
from simulator.study.capacity.verdict import Observation
from simulator.study.statistics.trend import GROWING, TOO_SHORT, backlog_of
from simulator.study.sweep.laboratory import Laboratory
from simulator.study.sweep.study_file import Study
from simulator.study.sweep.trial import DONE, FAILED, KILLED, Finished, Trial

NUM_REQUESTS = "workload.num_requests"
ENDS = ("completed", "rejected", "dropped", "timed_out", "failed")
A_FEW = 20                      # requests, of a run that only shows which keys a summary has


class ProbeFailed(RuntimeError):
    """A run of a probe failed, or its process died: there is no verdict."""


class Prober:
    """Observes values of the varied key at one point of a study.

    Requests of a drawn workload are as many as the percentiles of the bounds need after the warm-up is cut, and twice
    as many from the first probe on that has too few: drawn workloads begin alike, so that runs stay
    comparable.

    ends : by value, the results of its runs, the last of each seed.
    num_requests : of a drawn workload; None: the experiment's. asked : its [workload] num_requests.

    Parameters
    ----------
    study : its base is the experiment of the point.
    point : assignment beside the varied key, dotted key -> value.
    num_requests : of a drawn workload, in place of the needed number.
    """

    def __init__(self, laboratory: Laboratory, study: Study, varied: Varied, bounds: Bounds, **options: Any):
        self.ends: dict[float, dict[int, Finished]] = {}
        self._laboratory, self._study, self._varied, self._bounds = laboratory, study, varied, bounds
        self._point: dict[str, Any] = options.get("point") or {}
        self._most = study.settings.statistics.max_requests
        self.asked = getattr(study.base.workload.parameters, "num_requests", None)
        self.num_requests = options.get("num_requests") or self._first_length()

    def __call__(self, value: float, seeds: Sequence[int]) -> list[Observation]:
        """Return the observations of a value, one for each seed."""
        while True:
            ends = self._run(value, seeds)
            if self._growing(ends) or not any(map(self._is_short, ends)) or not self._lengthened():
                break
        self.ends.setdefault(value, {}).update(zip(seeds, ends, strict=True))
        return [self._observed(seed, end) for seed, end in zip(seeds, ends, strict=True)]

    @property
    def raised(self) -> tuple[int, int] | None:
        """[workload] num_requests and the number in the longest runs, if that is larger."""
        is_more = self.num_requests is not None and self.num_requests > self.asked
        return (self.asked, self.num_requests) if is_more else None

    def longer(self, factor: int) -> "Prober":
        """Return a prober of the same point with a multiple of the requests."""
        count = self.num_requests and max(self.num_requests, min(factor * self.num_requests, factor * self._most))
        return Prober(self._laboratory, self._study, self._varied, self._bounds, point=self._point, num_requests=count)

    def _run(self, value: float, seeds: Sequence[int]) -> list[Finished]:
        assignment = self._point | self._varied.assignment(value)
        trials = [self._laboratory.trial(assignment, seed, replication, self.num_requests)
                  for replication, seed in enumerate(seeds)]
        ended = {end.id: end for end in self._laboratory.run(trials)}
        if missing := [trial for trial in trials if trial.id not in ended]:
            raise KeyboardInterrupt(f"{len(missing)} runs were not begun")
        return [self._looked_at(trial, ended[trial.id], value) for trial in trials]

    def _looked_at(self, trial: Trial, end: Finished, value: float) -> Finished:
        if end.status in (FAILED, KILLED):
            raise ProbeFailed(f"{self._varied.key} = {value:g}, seed {trial.seed}: {end.status}: {end.error}")
        if end.status == DONE:
            check_keys(self._bounds, end.summary, f"{self._study.file}: study.slo")
        return end

    def _observed(self, seed: int, end: Finished) -> Observation:
        if end.status != DONE:
            return Observation(seed, {}, faults=(f"{end.status}: {end.error}",))
        observed = observation_of(end, self._bounds, math.isinf(self._study.base.horizon_s))._replace(seed=seed)
        if observed.backlog == GROWING and self._bounds.wants_stable:
            return observed
        return observed._replace(thin=observed.thin + tuple(
            metric for metric in end.extra["thin"] if metric not in observed.thin and not self._misses(metric, end)))

    def _is_short(self, end: Finished) -> bool:
        """Return whether more requests would make the run decisive."""
        if end.status != DONE or end.extra.get("is_cut"):
            return False
        return bool(end.extra["thin"]) or (self._bounds.wants_stable and backlog_of(end.extra) == TOO_SHORT)

    def _misses(self, metric: str, end: Finished) -> bool:
        """Return whether a percentile of few requests is beyond its bound for sure."""
        tail = self._study.settings.statistics.min_tail
        return any(each.is_most and is_missed_for_sure(metric, each.limit, end.summary, tail)
                   for each in self._bounds.bounds if each.key == metric)

    def _growing(self, ends: list[Finished]) -> bool:
        """Return whether more requests are useless: the queue grows in most runs, and that decides."""
        growing = sum(end.status == DONE and backlog_of(end.extra) == GROWING for end in ends)
        return self._bounds.wants_stable and 2 * growing > len(ends)

    def _lengthened(self) -> bool:
        if not self.num_requests or self.num_requests >= self._most:
            return False
        self.num_requests = min(2 * self.num_requests, self._most)
        return True

    def _first_length(self) -> int | None:
        """Return how many requests the percentiles of the bounds need; None: the workload has its own."""
        if not self._study.is_drawn or self.asked is None or self._varied.key == NUM_REQUESTS:
            return None
        tail = self._study.settings.statistics.min_tail
        needed = requests_for(metrics_of(self._bounds), tail, self._study.warmup)
        return max(self.asked, min(needed, self._most))


def observation_of(end: Finished, bounds: Bounds, is_endless: bool) -> Observation:
    """Return the observation of a completed run, even if its percentiles are thin.

    is_endless : the run ends when all requests have ended.
    """
    summary = end.summary
    good, injected = _share_of(end)
    unfinished = summary["requests.waiting"] + summary["requests.running"]
    backlog, is_cut = backlog_of(end.extra), end.extra.get("is_cut", False)
    any_ended = any(summary[f"requests.{name}"] for name in ENDS)
    thin = () if any_ended or not is_cut else tuple(dict.fromkeys(each.key for each in bounds.bounds))
    faults = ("requests did not end",) if unfinished and is_endless else ()
    return Observation(
        end.seed, {key: summary[key] for key in bounds.metrics}, good, injected,
        injected + end.extra["warmup_requests"], backlog, faults, thin, round(summary["requests.completed"]), is_cut)


def check_first(study: Study, bounds: Bounds, point: dict[str, Any]) -> None:
    """Run a few requests to find bounds on numbers that no summary has.

    Nothing is stored: faults are reported before any file is written. For workloads that are not drawn the first
    probe finds them.

    Raises
    ------
    InputErrors
        All such bounds.
    """
    asked = getattr(study.base.workload.parameters, "num_requests", None)
    if study.is_drawn and asked is not None:
        laboratory = Laboratory(study)
        trial = laboratory.trial(point, study.base.seed, 0, min(asked, A_FEW))
        for end in laboratory.run([trial]):
            if end.status == DONE:
                check_keys(bounds, end.summary, f"{study.file}: study.slo")


def _share_of(end: Finished) -> tuple[int, int]:
    """Return how many requests met every bound of [slo], and how many were injected."""
    injected = round(end.summary["requests.injected"])
    return round((end.summary["slo_attainment"] or 0.0) * injected), injected
