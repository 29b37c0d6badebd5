"""Runs the studies of a plan: the largest rate of each deployment, or the fewest GPUs of each layout for a rate."""
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from simulator.assembly.assemble import prepare
from simulator.errors import InputErrors
from simulator.study.planning.deployments import Deployment, Family
from simulator.study.sweep.laboratory import Laboratory
from simulator.study.sweep.study_file import Study, read_study
from simulator.study.telling.said import Said
from simulator.study.tuning import tune_table
from simulator.study.tuning.candidates import candidates_of
from simulator.study.tuning.files import StudyResults, results_of, write_all
from simulator.study.tuning.findings import Findings
from simulator.study.tuning.result import FEASIBLE, CandidateResult, Stopped
from simulator.study.tuning.search import EXHAUSTIVE, pruned
from simulator.study.tuning.study_directory import opened
from simulator.study.tuning.trying import trier_of
from simulator.study.tuning.tune_table import TuneTable

STEP_DOWN, MOST_STEPS_DOWN = 0.96, 6    # of a rate that all GPUs are expected to hold
ONE_REQUEST = {"workload.num_requests": 1}
STEP = 1.1                      # of the predicted rate, from a deployment that misses to the next


class Ended(NamedTuple):
    """A study that ended, or was stopped.

    results : the ranking, as `tune` has it. findings : all candidates. is_stopped : some runs were not started.
    """

    question: tune_table.Question
    findings: Findings
    results: StudyResults
    said: Said
    is_stopped: bool

    @property
    def candidates(self) -> list[CandidateResult]:
        """The candidates that ran: the ranking, then those that miss a bound."""
        return [*self.results.ranking, *(each for each in self.findings.results if each.status != FEASIBLE)]


class Runner:
    """Runs studies of kind "tune", each in the folder beside its file.

    Parameters
    ----------
    num_processes : side by side. stop : polled; True: no further run is started.
    """

    def __init__(self, num_processes: int, stop: Callable[[], bool]):
        self._num_processes, self._stop = num_processes, stop
        self._of_points: Study | None = None        # read once, to see whether points are experiments

    def whole(self, file: Path) -> Ended:
        """Run all candidates of a study file, and write its results.

        Raises
        ------
        InputErrors
            Faults of the study, or a directory with something else in it.
        """
        question = self._read(file)
        candidates, directory = pruned(candidates_of(question.study, list(question.study.points()))), _beside(file)
        seen: list[CandidateResult] = []
        laboratory = opened(question, directory, self._num_processes, self._stop)
        trier = trier_of(question, laboratory, directory, self._stop, seen.append)
        try:
            found, is_stopped = trier.try_all(candidates.kept), False
        except Stopped:
            found, is_stopped = seen, True
        findings = Findings(EXHAUSTIVE, found, candidates.dropped, [], not is_stopped)
        results = results_of(question, findings, trier.said, None)
        write_all(question, findings, results, directory)
        return Ended(question, findings, results, trier.said, is_stopped)

    def why_not(self, file: Path, family: Family) -> str:
        """Return why a family is no experiment; "": it is one.

        Parameters
        ----------
        file : a study file, with any points.
        """
        if self._of_points is None:
            self._of_points = self._read(file).study
        try:
            made = candidates_of(self._of_points, [family.rungs[0].point | ONE_REQUEST])
            prepare(made.kept[0].experiment)
        except InputErrors as errors:
            return errors.faults[0].removeprefix(f"{file}: ").removeprefix("of 1 candidates: ")
        return ""

    def searched(self, file: Path, searches: Sequence["Steps"],
                 write: Callable[[list[Deployment]], None]) -> tuple[Ended, list[Deployment]]:
        """Run searches side by side; then the study of all that was simulated.

        write : writes the study file with some deployments.

        Returns
        -------
        tuple
            The study, and its deployments in the order of its points.
        """
        steps: list[Deployment] = []
        laboratory = None
        while asked := [(each, step) for each in searches if (step := each.following(least_of(searches))) is not None]:
            steps += [step for _, step in asked]
            write(steps)
            question = self._read(file)
            if laboratory is None:
                laboratory = opened(question, _beside(file), self._num_processes, self._stop)
            passed = self._passed(question, laboratory, [step for _, step in asked])
            if passed is None:
                break
            for (search, _), is_held in zip(asked, passed, strict=True):
                search.tell(is_held)
        return self.whole(file), steps

    def _passed(self, question: tune_table.Question, laboratory: Laboratory,
                asked: list[Deployment]) -> list[bool] | None:
        """Return whether each deployment keeps the bounds at the rate of the experiment; None: stopped."""
        trier = trier_of(question, laboratory, Path(), self._stop, lambda result: None)
        made = pruned(candidates_of(question.study, [each.point for each in asked])).kept
        try:
            found = {each.candidate.number: each.status == FEASIBLE for each in trier.try_all(made)}
        except Stopped:
            return None
        return [found.get(number, False) for number in range(len(asked))]

    def _read(self, file: Path) -> tune_table.Question:
        return tune_table.check(read_study(file, None, TuneTable))


class Steps(Protocol):
    """A search over deployments, one at a time.

    gpus : fewest that are known to do; inf: none are known.
    """

    gpus: float

    def following(self, least: float) -> Deployment | None:
        """Return the deployment to try; None: the search has ended.

        least : GPUs that another search has found; more are not simulated.
        """

    def tell(self, is_held: bool) -> None:
        """Take note of whether it keeps the bounds."""


class Fewest:
    """The search of one family for its first deployment that holds a rate."""

    def __init__(self, family: Family, rate: float):
        self._rungs, self._low, self._high = family.rungs, -1, len(family.rungs)
        self._next = next((number for number, each in enumerate(self._rungs) if each.rate >= rate), self._high - 1)

    @property
    def gpus(self) -> float:
        """GPUs of the least deployment that is known to hold the rate; inf: none is known."""
        return self._rungs[self._high].gpus if self._high < len(self._rungs) else float("inf")

    def following(self, least: float) -> Deployment | None:
        """Return the deployment to try; None: the search has ended.

        least : GPUs that another search has found; more are not simulated.
        """
        if self._high - self._low <= 1 or self._rungs[self._low + 1].gpus > least:
            return None
        while self._next > self._low + 1 and self._rungs[self._next].gpus > least:
            self._next -= 1
        return self._rungs[self._next]

    def tell(self, is_held: bool) -> None:
        """Narrow the bracket; without an upper end, go on to a larger predicted rate."""
        at = self._next
        if is_held:
            self._high, following = at, at - max(1, (at + 1) // 16) if self._low < 0 else (self._low + at) // 2
        elif self._high < len(self._rungs):
            self._low, following = at, (at + self._high) // 2
        else:
            self._low, least_rate = at, self._rungs[at].rate * STEP
            following = next((number for number in range(at + 1, self._high) if self._rungs[number].rate >= least_rate),
                             self._high - 1)
        self._next = min(max(following, self._low + 1), max(self._high - 1, 0))


class Held:
    """The search for a rate that a deployment holds, from the expected one down."""

    gpus = float("inf")

    def __init__(self, deployment: Deployment, rate: float):
        self._deployment, self._rate, self._left = deployment, rate, MOST_STEPS_DOWN

    def following(self, least: float) -> Deployment | None:
        """Return the deployment at the next rate; None: the search has ended."""
        return self._deployment.at(self._rate) if self._left else None

    def tell(self, is_held: bool) -> None:
        """Step down, unless the rate is held."""
        self._rate, self._left = self._rate * STEP_DOWN, 0 if is_held else self._left - 1


def least_of(searches: Sequence[Steps]) -> float:
    """Return the fewest GPUs that any search has found."""
    return min(each.gpus for each in searches)


def _beside(file: Path) -> Path:
    return file.with_suffix("")
