"""Candidates are simulated: at a load that is given, or each at its own largest rate."""
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from msgspec.structs import replace

from simulator.errors import InputErrors
from simulator.study.capacity.answer import answer
from simulator.study.capacity.bounds import check_keys
from simulator.study.capacity.estimate import estimated_rate
from simulator.study.capacity.prober import ProbeFailed, Prober
from simulator.study.capacity.search import Span
from simulator.study.capacity.varied import RATE, RATE_SCALE, Varied
from simulator.study.capacity.verdict import Observation, Rules, Verdict, weigh
from simulator.study.statistics.intervals import Estimate
from simulator.study.sweep.laboratory import Laboratory
from simulator.study.sweep.study_file import Study
from simulator.study.sweep.trial import DONE, FAILED, Finished
from simulator.study.tuning.candidates import Candidate
from simulator.study.tuning.objectives import estimates_of, numbers_of
from simulator.study.tuning.table import CAPACITY, Question

FEASIBLE, MISSED = "feasible", "infeasible"
LEAST_RATE, MOST_RATE = 1e-3, 1e6       # requests a second: the bracket of a search grows from a predicted rate
COARSE_TOLERANCE = 0.1                  # of a rate in a round of halving


class Tried(NamedTuple):
    """What became of a candidate.

    status : "feasible", "infeasible", or that of a run which is not done. why : it is not feasible; empty: it is.
    values : of the objectives, with half-widths. margin : least room to the bounds, relative; NaN: not known.
    assignment : of the runs, with the rate that was found. num_requests : of each run; None: the experiment's.
    ends : its runs, one for each seed. rate : that was found; None: none was searched.
    """

    candidate: Candidate
    status: str
    why: str = ""
    values: tuple[Estimate, ...] = ()
    margin: float = math.nan
    assignment: dict[str, Any] = {}
    num_requests: int | None = None
    ends: tuple[Finished, ...] = ()
    rate: float | None = None
    notes: tuple[str, ...] = ()


class Stopped(Exception):
    """No run is to begin any more."""


class Trier:
    """Tries candidates as a study loads them.

    Parameters
    ----------
    tell : called with each candidate that has been tried.
    """

    def __init__(self, question: Question, laboratory: Laboratory, tell: Callable[[Tried], None]):
        self._question, self._laboratory, self._tell = question, laboratory, tell
        self._at_capacity = question.settings.load == CAPACITY
        self._has_checked = False

    def try_all(self, candidates: Iterable[Candidate], num_requests: int | None = None) -> list[Tried]:
        """Return what becomes of candidates, in their order.

        Parameters
        ----------
        num_requests : of each run; None: those of the experiment.

        Raises
        ------
        Stopped
            Some runs were not begun.
        InputErrors
            An objective or a bound is no number of summary.json.
        """
        candidates = list(candidates)
        if self._at_capacity:
            found = []
            for candidate in candidates:
                found.append(self._searched(candidate, num_requests))
                self._tell(found[-1])
            return found
        return self._loaded(candidates, num_requests)

    def _loaded(self, candidates: list[Candidate], num_requests: int | None) -> list[Tried]:
        seeds = self._question.study.seeds
        trials = [[self._laboratory.trial(candidate.assignment, seed, replication, num_requests)
                   for replication, seed in enumerate(seeds)] for candidate in candidates]
        ended: dict[str, Finished] = {}
        for end in self._laboratory.run(trial for own in trials for trial in own):
            ended[end.id] = end
            self._check_keys(end)
        if any(trial.id not in ended for own in trials for trial in own):
            raise Stopped
        found = []
        for candidate, own in zip(candidates, trials, strict=True):
            found.append(self._judged(candidate, [ended[trial.id] for trial in own], num_requests))
            self._tell(found[-1])
        return found

    def _judged(self, candidate: Candidate, ends: list[Finished], num_requests: int | None) -> Tried:
        """Return what runs at a given load say."""
        tried = Tried(candidate, FEASIBLE, assignment=candidate.assignment, num_requests=num_requests,
                      ends=tuple(ends))
        if failed := next((end for end in ends if end.status != DONE), None):
            return tried._replace(status=failed.status, why=failed.error or failed.status)
        tried = self._valued(tried)
        bounds = self._question.bounds
        if not bounds.bounds:
            return tried
        rules = Rules(bounds, max_seeds=1, confidence=self._question.settings.statistics.confidence)
        verdict = weigh(0.0, [self._observed(end) for end in ends], rules)
        tried = tried._replace(margin=verdict.margin)
        return tried if verdict.passes else tried._replace(status=MISSED, why=verdict.sentence)

    def _observed(self, end: Finished) -> Observation:
        """Return what a run says of the bounds; percentiles of few requests are marked, and count."""
        summary, bounds = end.summary, self._question.bounds
        goodput = summary["request_goodput"]
        good = 0 if goodput is None else round(goodput * summary["duration_s"])
        unfinished = summary["requests.waiting"] + summary["requests.running"]
        faults = ("requests did not end",) if unfinished and math.isinf(self._question.study.base.horizon_s) else ()
        return Observation(end.seed, {key: summary[key] for key in bounds.metrics}, good,
                           round(summary["requests.injected"]), end.extra["backlog"], faults)

    def _valued(self, tried: Tried) -> Tried:
        """Return it with the values of the objectives."""
        numbers = [numbers_of(end, tried.candidate.experiment, tried.rate) for end in tried.ends]
        values = estimates_of(self._question.objectives, numbers, list(tried.ends),
                              self._question.settings.statistics.confidence)
        missing = [each.key for each, value in zip(self._question.objectives, values, strict=True)
                   if math.isnan(value.mean)]
        tried = tried._replace(values=values)
        if missing:
            tried = tried._replace(status=MISSED, why=f"{missing[0]}: there is nothing to measure")
        return tried

    def _check_keys(self, end: Finished) -> None:
        """Refuse what is no number of a run, with the first that is done."""
        if self._has_checked or end.status != DONE:
            return
        check_objectives(self._question, end)
        self._has_checked = True

    def _searched(self, candidate: Candidate, num_requests: int | None) -> Tried:
        """Return what a candidate does at its largest rate; coarsely, with one seed, where requests are few."""
        study, varied = self._question.study, varied_of(self._question.study, candidate)
        if num_requests is not None:
            study, varied = _coarse(study, num_requests), varied._replace(
                span=varied.span._replace(rel_tol=max(COARSE_TOLERANCE, varied.span.rel_tol)))
        prober = Prober(self._laboratory, study, varied, self._question.bounds, point=candidate.assignment,
                        num_requests=num_requests)
        tried = Tried(candidate, MISSED, assignment=candidate.assignment, num_requests=num_requests)
        try:
            start = varied.span.within(estimated_rate(candidate.experiment) or 1.0 if varied.is_rate else 1.0)
            found = answer(prober, study, varied, self._question.bounds, start, _nothing)
            if found.value is None:
                fails = found.found.bad
                return tried._replace(why=f"even {fails.value:.6g} {_unit(varied)} misses {fails.sentence}",
                                      margin=fails.margin)
            if found.is_verified is False:
                return tried._replace(why="no rate holds with new seeds and longer runs", rate=found.value)
            seeds = range(study.base.seed, study.base.seed + study.settings.min_seeds)
            if found.value not in prober.ends:
                prober(found.value, seeds)      # a step inward of what the search had found
        except ProbeFailed as failed:
            return tried._replace(status=FAILED, why=str(failed))
        except KeyboardInterrupt:               # runs that were not begun
            raise Stopped from None
        except InputErrors as errors:           # of the workload or the bounds: it holds for all candidates
            raise InputErrors(errors.faults) from None
        runs = prober.ends[found.value]
        ends = tuple(runs[seed] for seed in sorted(runs))
        self._check_keys(ends[0])
        notes = ("largest rate that is searched",) * (found.found.at_bound == "to")
        notes += () if found.found.is_monotone else ("not monotone",)
        return self._valued(tried._replace(
            status=FEASIBLE, ends=ends, rate=found.value, num_requests=prober.num_requests, notes=notes,
            assignment=candidate.assignment | varied.assignment(found.value), margin=found.found.good.margin))


def check_objectives(question: Question, end: Finished) -> None:
    """Refuse objectives and bounds that a run has no number for.

    Raises
    ------
    InputErrors
        Every one of them, with the nearest key that there is.
    """
    place = f"{question.study.file}: study"
    faults: list[str] = []
    numbers = numbers_of(end, question.study.base)
    from simulator.errors import did_you_mean
    faults += [f'{place}.objectives: a run has no number "{each.key}"{did_you_mean(each.key, numbers)}'
               for each in question.objectives if each.key not in numbers]
    try:
        check_keys(question.bounds, end.summary, f"{place}.slo")
    except InputErrors as errors:
        faults += errors.faults
    if faults:
        raise InputErrors(faults)


def varied_of(study: Study, candidate: Candidate) -> Varied:
    """Return the rate of arrivals as what a search varies; of a trace by how much they come faster."""
    span = Span(LEAST_RATE, MOST_RATE, study.settings.rel_tol)
    if study.base.workload.type == "trace":
        return Varied(RATE_SCALE, span, candidate.experiment.workload.parameters.time_scale)
    return Varied(RATE, span, None)


def _coarse(study: Study, num_requests: int) -> Study:
    """Return the study with one run a probe, and no longer ones."""
    statistics = replace(study.settings.statistics, max_requests=num_requests)
    return study._replace(settings=replace(study.settings, statistics=statistics, min_seeds=1, max_seeds=1))


def _unit(varied: Varied) -> str:
    return "requests a second" if varied.is_rate else "times the rate of the trace"


def _nothing(verdict: Verdict) -> None:
    pass
