"""Trials of candidates at their own largest rate that keeps the bounds, as `capacity` finds it; one process each."""
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from simulator.errors import InputErrors
from simulator.study.capacity.estimate import estimated_rate
from simulator.study.capacity.point_search import answer, rules_of
from simulator.study.capacity.prober import ProbeFailed, Prober
from simulator.study.capacity.search import Found, Search, Span
from simulator.study.capacity.thin import Thin, thin_values
from simulator.study.capacity.varied import RATE, RATE_SCALE, Varied
from simulator.study.capacity.verdict import Observation, Probe, Verdict, judge
from simulator.study.sweep.laboratory import Laboratory
from simulator.study.sweep.pool import Rules, Served, serve
from simulator.study.sweep.run_store import known_in
from simulator.study.sweep.study_file import Study
from simulator.study.sweep.trial import FAILED, KILLED, Finished
from simulator.study.telling.said import Said
from simulator.study.telling.screen import figure
from simulator.study.tuning.candidates import Candidate
from simulator.study.tuning.result import FEASIBLE, MISSED, CandidateResult, Stopped, check_objectives, valued
from simulator.study.tuning.study_directory import KIND
from simulator.study.tuning.tune_table import Question

LEAST_RATE, MOST_RATE = 1e-3, 1e6       # requests a second: the bracket of a search grows from a predicted rate
COARSE_TOLERANCE = 0.1                  # of a rate in a round of halving


class AtCapacity:
    """Tries candidates at their largest rates.

    said : the remarks of its runs.

    Parameters
    ----------
    laboratory : where runs are simulated; with several processes each searches for one candidate at a time.
    directory : of the store; other processes read its runs, and write segments of their own.
    tell : callback, called with each candidate that has been tried.
    """

    def __init__(self, question: Question, laboratory: Laboratory, directory: Path,
                 stop: Callable[[], bool], tell: Callable[[CandidateResult], None]):
        self._searcher = Searcher(question, directory, laboratory)
        self._num_processes, self._stop, self._tell = laboratory.num_processes, stop, tell
        self._retries = question.settings.run.retries
        self.said = Said()

    def try_all(self, candidates: Iterable[Candidate], num_requests: int | None = None) -> list[CandidateResult]:
        """Return the results of candidates, in their order.

        Parameters
        ----------
        num_requests : of each run, with one seed and coarsely; None: as `capacity` does.

        Raises
        ------
        Stopped
            Some runs were not started.
        InputErrors
            An objective or a bound is no number of summary.json.
        """
        asked = [(candidate, num_requests) for candidate in candidates]
        found: dict[int, CandidateResult] = {}
        for result in self._each(asked):
            if result.said is not None:
                self.said.merge(result.said)
            found[result.candidate.number] = result._replace(said=None)
            self._tell(result)
        if len(found) < len(asked):
            raise Stopped
        return [found[candidate.number] for candidate, _ in asked]

    def _each(self, asked: list[tuple[Candidate, int | None]]) -> Iterator[CandidateResult]:
        if self._num_processes == 1 or len(asked) == 1:
            for item in asked:
                yield self._searcher.search(*item)
            return
        rules = Rules(min(self._num_processes, len(asked)), self._retries, stop=self._stop)
        for served in serve(search, self._searcher, asked, rules):
            yield _ended(served)


class Searcher:
    """Searches for the largest rate of a candidate; picklable."""

    def __init__(self, question: Question, directory: Path, laboratory: Laboratory | None = None):
        self._question, self._directory, self._laboratory = question, directory, laboratory
        self._has_checked = False

    def __getstate__(self):
        return self._question, self._directory

    def __setstate__(self, state):
        self.__init__(*state)

    def search(self, candidate: Candidate, num_requests: int | None) -> CandidateResult:
        """Return the result of a candidate at its largest rate.

        num_requests : of each run, searched coarsely with one seed; None: as `capacity` does.
        """
        prober = self._prober(candidate, num_requests)
        self._laboratory.said = Said()
        return self._found(prober, candidate, num_requests)._replace(said=self._laboratory.said)

    def _found(self, prober: Prober, candidate: Candidate, num_requests: int | None) -> CandidateResult:
        result = CandidateResult(candidate, MISSED, assignment=candidate.assignment, num_requests=num_requests)
        try:
            value, found, is_repeated, thin = self._largest(prober, candidate, num_requests)
            if value is None and thin is not None:
                return result._replace(why=f"{thin_values(thin)} {self._unit()} is thin: too few requests for "
                                          f"{thin.sentence}")
            if value is None:
                why = f"even {figure(found.bad.value)} {self._unit()} misses: {found.bad.sentence}"
                return result._replace(why=why, margin=found.bad.margin)
            if is_repeated is False:
                return result._replace(why="no rate holds with new seeds and longer runs", rate=value)
            ends = self._runs(prober, value)
        except ProbeFailed as failed:
            return result._replace(status=FAILED, why=str(failed))
        except KeyboardInterrupt:               # some runs were not started
            raise Stopped from None
        if not self._has_checked:
            check_objectives(self._question, ends[0])
            self._has_checked = True
        notes = ("the largest rate that is tried",) * (found.at_bound == "to")
        notes += () if found.is_monotone else ("not monotone",)
        return valued(self._question, result._replace(
            status=FEASIBLE, ends=ends, rate=value, num_requests=prober.num_requests, notes=notes,
            assignment=candidate.assignment | varied_of(self._question, candidate).assignment(value),
            margin=found.good.margin))

    def _prober(self, candidate: Candidate, num_requests: int | None) -> Prober:
        question = self._question
        if self._laboratory is None:
            self._laboratory = Laboratory(question.study, self._directory, 1, known_in(self._directory, KIND))
        study = question.study if num_requests is None else _coarse(question.study, num_requests)
        return Prober(self._laboratory, study, varied_of(question, candidate), question.bounds,
                      point=candidate.assignment, num_requests=num_requests)

    def _largest(self, prober: Prober, candidate: Candidate, num_requests: int | None) -> tuple[
            float | None, Found, bool | None, Thin | None]:
        """Return the largest rate, the search that found it, whether new runs agree, and values that are thin.

        None: no new runs were made; no value is thin.
        """
        question, varied = self._question, varied_of(self._question, candidate)
        start = varied.span.within((estimated_rate(candidate.experiment) if varied.is_rate else None) or 1.0)
        if num_requests is None:
            found = answer(prober, question.study, varied, question.bounds, start, _nothing)
            return found.value, found.found, found.is_repeated, found.thin
        rules = rules_of(_coarse(question.study, num_requests), question.bounds)
        span = varied.span._replace(rel_tol=max(COARSE_TOLERANCE, varied.span.rel_tol))
        found = Search(lambda value: judge(value, _though_thin(prober), rules), span).run(start)
        return found.answer, found, None, None

    def _runs(self, prober: Prober, value: float) -> tuple[Finished, ...]:
        """Return the runs with a rate, all as long as the last that were requested."""
        first = self._question.study.base.seed
        seeds = sorted(prober.ends.get(value, range(first, first + self._question.settings.min_seeds)))
        prober(value, seeds)
        return tuple(prober.ends[value][seed] for seed in seeds)

    def _unit(self) -> str:
        is_trace = self._question.study.base.workload.type == "trace"
        return "times the rate of the trace" if is_trace else "requests a second"


def search(searcher: Searcher, item: tuple[Candidate, int | None]) -> CandidateResult | InputErrors:
    """Search for the rate of a candidate, at a worker; faults are returned."""
    try:
        return searcher.search(*item)
    except InputErrors as errors:
        return errors


def _ended(served: Served) -> CandidateResult:
    """Return the result of a candidate from a worker process, which may have died of it."""
    if isinstance(served.result, InputErrors):
        raise served.result
    candidate, num_requests = served.item
    if served.lost is not None:
        return CandidateResult(candidate, KILLED, served.why_lost(), num_requests=num_requests)
    return served.result


def varied_of(question: Question, candidate: Candidate) -> Varied:
    """Return the key that is varied: the rate of arrivals, of a trace its rate scale."""
    span = Span(LEAST_RATE, MOST_RATE, question.settings.rel_tol)
    if question.study.base.workload.type == "trace":
        return Varied(RATE_SCALE, span, candidate.experiment.workload.parameters.time_scale)
    return Varied(RATE, span, None)


def _though_thin(prober: Prober) -> Probe:
    """Return a probe that also accepts percentiles of few requests."""
    def probe(value: float, seeds: Sequence[int]) -> list[Observation]:
        return [each._replace(thin=()) for each in prober(value, seeds)]

    return probe


def _coarse(study: Study, num_requests: int) -> Study:
    """Return the study with one run a probe, and no longer ones."""
    statistics = replace(study.settings.statistics, max_requests=num_requests)
    return study._replace(settings=replace(study.settings, statistics=statistics, min_seeds=1, max_seeds=1))


def _nothing(verdict: Verdict) -> None:
    pass
