"""A plan: layouts that fit, the studies over them, and the deployment that answers the question."""
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from simulator.config.layers import read_layers
from simulator.config.load import resolve
from simulator.errors import InputErrors
from simulator.study.capacity.fit import Asked, Fit
from simulator.study.planning.deployments import RATE, Deployment, Family, chosen, families_of
from simulator.study.planning.question import Question
from simulator.study.planning.running import Ended, Fewest, Held, Runner
from simulator.study.planning.server import Server
from simulator.study.planning.texts import (
    EXPERIMENT,
    FASTEST,
    HELD,
    LARGEST,
    PART,
    ROUTERS,
    SERVER,
    SERVER_STUDY,
    STUDY,
    experiment_text,
    lines_of_tables,
    num_requests,
    requests_tables,
    server_text,
    study_text,
)
from simulator.study.planning.units import Unit, all_fits, least_that_fits, units_of
from simulator.study.sweep.writing import write
from simulator.study.tuning.result import FEASIBLE, CandidateResult

MOST_AT_ONCE = 12               # GPUs: with more, rates are searched for on PART_GPUS first
PART_GPUS = 8
MOST_LENGTHENED = 3             # times that a study is run, each with twice the requests, where its runs were too short
MOST_AT_FULL_SIZE = 2           # deployments, the best on a part
NUMBERED = re.compile(r"\d+")      # reasons that differ in numbers are one
STUDIES = (STUDY, LARGEST, f"{PART}{STUDY}", f"{PART}{LARGEST}", ROUTERS, SERVER_STUDY)      # with a folder of results
ROUTER = "cluster.routing.policy"


class StudyRun(NamedTuple):
    """A study of a plan.

    file : its TOML. deployments : in the order of its points. is_offered : at given rates.
    """

    file: Path
    deployments: list[Deployment]
    is_offered: bool
    ended: Ended

    @property
    def best(self) -> CandidateResult | None:
        """The best candidate; None: none keeps the bounds."""
        return next(iter(self.ended.results.ranking), None)

    @property
    def is_hasty(self) -> bool:
        """Whether runs were too short: longer ones did not hold a rate that was found."""
        return any(each.rate is not None and each.status != FEASIBLE for each in self.ended.findings.results)

    def rate_of(self, result: CandidateResult, question: Question) -> float | None:
        """Return the rate of a candidate's runs."""
        return self.of(result).point.get(RATE, question.requests.rate) if self.is_offered else result.rate

    def of(self, result: CandidateResult) -> Deployment:
        """Return the deployment of a candidate."""
        return self.deployments[result.candidate.number]


class Plan(NamedTuple):
    """The answer.

    fits : layouts of one replica. units : those that fit, with predictions. studies : that were run, the last that
    found something has the answer. routers : in front of the best deployment. server : of --from, as it is. notes : a
    sentence each.
    """

    question: Question
    directory: Path
    fits: list[Fit]
    units: list[Unit]
    studies: tuple[StudyRun, ...]
    notes: tuple[str, ...] = ()
    routers: StudyRun | None = None
    server: StudyRun | None = None

    @property
    def all_studies(self) -> tuple[StudyRun, ...]:
        """The studies, with those of routers and of the server."""
        return (*self.studies, *(each for each in (self.routers, self.server) if each is not None))

    @property
    def answer(self) -> StudyRun | None:
        """The study with the answer; None: nothing that was simulated keeps the bounds."""
        return next((each for each in reversed(self.studies) if each.best is not None), None)

    @property
    def best(self) -> CandidateResult | None:
        """The best deployment."""
        return self.answer and self.answer.best

    @property
    def rate(self) -> float | None:
        """The rate that the best deployment holds."""
        return self.answer and self.answer.rate_of(self.best, self.question)

    @property
    def holds(self) -> bool:
        """Whether a deployment keeps the bounds, at the rate if one is given."""
        return self.best is not None and (self.question.requests.rate is None or self.answer is self.studies[0])

    @property
    def is_stopped(self) -> bool:
        """Whether some runs were not started."""
        return any(each.ended.is_stopped for each in self.all_studies)


class Planner:
    """Makes a plan in a folder.

    Parameters
    ----------
    may_replace : whether the experiment and the results of another plan in the folder are replaced.
    server : of --from; None: there is none.
    """

    def __init__(self, question: Question, directory: Path, runner: Runner, may_replace: bool,
                 server: Server | None = None):
        self._question, self._directory, self._runner, self._server = question, directory, runner, server
        self._may_replace = may_replace
        self._why_not: dict[str, str] = {}          # name of a family that was tried -> why it is no experiment; or ""

    def plan(self, sizes: tuple[int, ...] | None, is_split: bool, routers: tuple[str, ...]) -> Plan:
        """Return the plan.

        Parameters
        ----------
        sizes : tensor-parallel sizes that are allowed; None: all. is_split : whether prefill and decode may be
            separate. routers : to compare in front of the best deployment; empty: none.

        Raises
        ------
        InputErrors
            The model fits nowhere, or the folder holds another plan.
        """
        question = self._question
        fits, units = self._fitting(sizes)
        if self._may_replace:
            for name in STUDIES:
                shutil.rmtree((self._directory / name).with_suffix(""), ignore_errors=True)
        families = families_of(units, question.gpus, is_split and question.requests.output > 1)
        rate = question.requests.rate
        count = num_requests(question, rate or max(each.rungs[-1].rate for each in families), True)
        self._write(EXPERIMENT, experiment_text(question, count))
        self._write(STUDY, study_text(question, STUDY, [each.rungs[0] for each in families], True, count))
        notes = []
        if question.requests.output == 1 and is_split:
            notes.append("prefill and decode are not separated: an answer of one token ends with its prompt")
        if self._server is not None and self._server.unmodelled:
            notes.append(f"--from: not modelled: {'; '.join(self._server.unmodelled)}")
        made = Plan(question, self._directory, fits, units, (), (*question.notes, *notes))
        if rate is not None:
            made = made._replace(studies=(self._fewest(families, rate, count),))
        if made.best is None and not made.is_stopped:
            made = made._replace(studies=(*made.studies, *self._largest(STUDY if rate is None else LARGEST, families)))
        if routers and made.best is not None and not made.is_stopped:
            made = made._replace(routers=self._routers(made, routers))
        if self._server is not None and not made.is_stopped:
            made = made._replace(server=self._as_it_is(self._server, made.rate or rate or 1.0))
        return made._replace(notes=(*made.notes, *self._reasons()))

    def _fitting(self, sizes: tuple[int, ...] | None) -> tuple[list[Fit], list[Unit]]:
        """Return all layouts of one replica, and those that fit."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / EXPERIMENT
            path.write_text(experiment_text(self._question, 1), encoding="utf-8")
            layers = read_layers(str(path))
        asked = Asked(EXPERIMENT, layers, resolve(layers.copy()), -1)
        fits = all_fits(asked, self._question, sizes)
        units = units_of(self._question, fits)
        if not units:
            raise InputErrors(_nowhere(self._question, fits, least_that_fits(asked, self._question)))
        return fits, units

    def _chosen(self, families: list[Family], rate: float | None) -> list[Family]:
        """Return the families to simulate: the best by prediction, among experiments."""
        while True:
            found = chosen([each for each in families if not self._why_not.get(each.name)], rate)
            untried = [each for each in found if each.name not in self._why_not]
            if not untried:
                return found
            self._why_not |= {each.name: self._runner.why_not(self._directory / STUDY, each) for each in untried}

    def _reasons(self) -> list[str]:
        """Return why families are no experiments; of reasons that differ in numbers the first."""
        reasons: dict[str, str] = {}
        for name, why in self._why_not.items():
            if why:
                reasons.setdefault(NUMBERED.sub("", why), f"{name}: not simulated: {why}")
        return list(reasons.values())

    def _fewest(self, families: list[Family], rate: float, count: int) -> StudyRun:
        """Run the study of the fewest GPUs of each family that hold the rate."""
        file = self._directory / STUDY
        ended, asked = self._runner.searched(
            file, [Fewest(each, rate) for each in self._chosen(families, rate)], lambda deployments: self._write(
                STUDY, study_text(self._question, STUDY, deployments, True, count), True))
        return StudyRun(file, asked, True, ended)

    def _largest(self, name: str, families: list[Family]) -> Iterator[StudyRun]:
        """Run the studies of the largest rates: of a part of many GPUs first, then of all at the rates expected."""
        gpus = self._part(families)
        part = families if gpus == self._question.gpus else [_within(each, gpus) for each in families
                                                             if each.rungs[0].gpus <= gpus]
        deployments = [each.rungs[-1] for each in self._chosen(part, None)]
        count = num_requests(self._question, max(each.rate for each in deployments), False)
        first = name if gpus == self._question.gpus else f"{PART}{name}"
        for _ in range(MOST_LENGTHENED):
            study = self._run(first, deployments, count)
            if study.best is not None or study.ended.is_stopped or not study.is_hasty:
                break
            count *= 2
        yield study
        if gpus < self._question.gpus and study.best is not None and not study.ended.is_stopped:
            yield self._at_full_size(name, families, study)

    def _run(self, name: str, deployments: list[Deployment], count: int) -> StudyRun:
        """Run a study of largest rates."""
        self._write(name, study_text(self._question, name, deployments, False, count), True)
        return StudyRun(self._directory / name, deployments, False, self._runner.whole(self._directory / name))

    def _at_full_size(self, name: str, families: list[Family], part: StudyRun) -> StudyRun:
        """Run the best deployments on all GPUs, at rates scaled up from their runs on PART_GPUS."""
        whole, expected = {each.name: each.rungs[-1] for each in families}, []
        for result in part.ended.results.ranking:
            own = part.of(result)
            full = next(whole[each.name] for each in families if own.words in {rung.words for rung in each.rungs})
            by = full.rate / own.rate if own.rate else full.gpus / own.gpus
            expected.append((result.rate * by, full))
        expected = sorted(expected, key=lambda each: -each[0])[:MOST_AT_FULL_SIZE]
        count = num_requests(self._question, expected[0][0], True)
        file = self._directory / name
        ended, asked = self._runner.searched(
            file, [Held(full, rate) for rate, full in expected], lambda deployments: self._write(
                name, study_text(self._question, name, deployments, True, count, HELD), True))
        return StudyRun(file, asked, True, ended)

    def _part(self, families: list[Family]) -> int:
        """Return the GPUs on which rates are searched for: all, or a part that holds two replicas of the smallest."""
        gpus = self._question.gpus
        least = 2 * min(each.rungs[0].gpus for each in families)
        return gpus if gpus <= MOST_AT_ONCE else min(max(PART_GPUS, least), gpus)

    def _routers(self, made: "Plan", routers: tuple[str, ...]) -> StudyRun:
        """Run the best deployment behind each router, at the rate that it holds."""
        best, rate = made.answer.of(made.best), made.rate
        choices = [best._replace(words=each, point=best.point | {RATE: rate, ROUTER: each}) for each in routers]
        count = num_requests(self._question, rate, True)
        self._write(ROUTERS, study_text(self._question, ROUTERS, choices, True, count, FASTEST), True)
        file = self._directory / ROUTERS
        return StudyRun(file, choices, True, self._runner.whole(file))

    def _as_it_is(self, server: Server, rate: float) -> StudyRun:
        """Run the study of the largest rate of a server."""
        count = num_requests(self._question, rate, False)
        requests = lines_of_tables(requests_tables(self._question, count))
        self._write(SERVER, server.text + "\n".join([*requests, ""]), True)
        self._write(SERVER_STUDY, server_text(self._question, count), True)
        file = self._directory / SERVER_STUDY
        own = Deployment("the server as it is", server.gpus, {}, 0.0)
        return StudyRun(file, [own], False, self._runner.whole(file))

    def _write(self, name: str, text: str, is_own: bool = False) -> None:
        """Write a file of the plan; one that differs stays, unless it is this plan's own."""
        path = self._directory / name
        is_kept = name == EXPERIMENT and not is_own and not self._may_replace and path.exists()
        if is_kept and path.read_text(encoding="utf-8") != text:
            raise InputErrors([f"{path}: is there, and of another plan or changed: --overwrite replaces it, --out "
                               "chooses another folder"])
        write(path, text)


def _nowhere(question: Question, fits: list[Fit], larger: Fit | None) -> list[str]:
    """Return why a model fits nowhere, the layout on the most GPUs first, and how many would hold it."""
    last = [each for each in fits if each.gpus == max(other.gpus for other in fits)]
    reasons = list(dict.fromkeys(each.refusal for each in last))[:2] if fits else ["no layout is allowed"]
    more = f"; {larger.gpus} GPUs hold it" if larger is not None else ""
    return [f"{question.title} fits on no layout of {question.gpus} {question.card}{more}: {why}" for why in reasons]


def _within(family: Family, gpus: int) -> Family:
    return family._replace(rungs=tuple(each for each in family.rungs if each.gpus <= gpus))
