"""The result of a calibration: fitted values, their intervals, and prediction errors."""
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simulator.assembly.latency import Readings
from simulator.core.random_streams import RandomStreams
from simulator.domain.step_table import write_table
from simulator.study.calibration.blocks import blocks_of
from simulator.study.calibration.calibrate_table import REQUESTS, STEPS
from simulator.study.calibration.confidence import Interval, Sample, of_gaps, of_requests, of_steps
from simulator.study.calibration.data import METRICS, US_PER_S
from simulator.study.calibration.evaluations import Evaluations
from simulator.study.calibration.fit_keys import value_of
from simulator.study.calibration.grades import grade
from simulator.study.calibration.newton import reach_of
from simulator.study.calibration.objective import LEAST_MS, objective, quantile_residuals
from simulator.study.calibration.question import DataSet, Question
from simulator.study.calibration.replay import Counts, Replay, Replayed, check_counts, compared
from simulator.study.calibration.residual import FILE, Fit, check_one_server, fit_residual
from simulator.study.calibration.search import least
from simulator.study.calibration.step_batches import priced
from simulator.study.calibration.steps import (
    GAP,
    LINEAR,
    PRICES,
    gap_us,
    gaps_us,
    predicted_us,
    prices_in,
    problem_of,
    solved,
)
from simulator.study.calibration.surface import around, plane

NAMES = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2el"}      # here: in calibration.json
STEP = "step"
SEEN = 0.05                     # change of quantiles by a key in the box of the sensitivity
MOST_TIMES_TRAINING = 2.0       # a held-out error beyond it does not transfer
US_PER_MS = 1e3


class Fitted(NamedTuple):
    """A value. level : the data that it was fitted to, iterations or requests."""

    value: float
    interval: Interval
    level: str


class Answer(NamedTuple):
    """The result of a calibration.

    coefficients : key -> value; empty for a comparison. training, held_out : as in calibration.json; held_out None:
    nothing was held out. transfers : None: not known. objective : of a fit to requests.
    replayed : of each data set, None where it has no requests. notes : warnings for the user.
    residual : fitted to iterations; None: none was asked for.
    """

    question: Question
    coefficients: dict[str, Fitted]
    training: dict[str, Any]
    held_out: dict[str, Any] | None
    transfers: bool | None
    objective: float | None
    replayed: tuple[Replayed | None, ...]
    notes: tuple[str, ...]
    residual: Fit | None = None


class Solver:
    """Fits and compares.

    Parameters
    ----------
    folder : for the file of a residual. evaluations : of objectives, opened.
    is_over : returns whether no further simulation may start.
    tell : callback, called with the number of evaluations so far, and the least objective.
    """

    def __init__(self, question: Question, folder: Path, evaluations: Evaluations, is_over: Callable[[], bool],
                 tell: Callable[[int, float], None]):
        self._question, self._evaluations, self._is_over, self._tell = question, evaluations, is_over, tell
        self._folder, self._fixed = folder, {}      # keys that the fit sets, besides [study.fit]: the residual
        readings, rtt_ms = Readings(), question.settings.client_rtt_ms
        self._replays = [None if each.requests is None else Replay(each, rtt_ms, readings) for each in question.sets]
        self._best = np.inf
        self._count = 0

    def answer(self) -> Answer:
        """Fit, and compare.

        Raises
        ------
        InputErrors
            Data and experiment do not fit together. Stopped: a stop was requested.
        """
        question = self._question
        found = self._of_steps() if question.by_steps() else {}
        residual = self._residual({key: each.value for key, each in found.items()})
        least_objective = None
        if question.by_requests():
            self._check({})                     # now, and not after hours of fitting
            fitted, least_objective = self._of_requests({key: each.value for key, each in found.items()})
            found |= fitted
        values = {key: found[key].value for key in question.fit}
        replayed = self._check(values)
        training, held = (self._graded(values, replayed, is_held) for is_held in (False, True))
        _add_headlines(question.level, training, held)
        transfers = None if held is None or held["mape"] is None or training["mape"] is None \
            else held["mape"] <= MOST_TIMES_TRAINING * training["mape"]
        notes = question.notes + tuple(self._notes(found)) + (() if residual is None else residual.notes)
        return Answer(question, {key: found[key] for key in question.fit}, training, held, transfers, least_objective,
                      replayed, notes, residual)

    def _check(self, values: Mapping[str, float]) -> tuple[Replayed | None, ...]:
        """Return the simulations of all data sets; make sure that they can be compared."""
        replayed = tuple(replay and self._replay(replay, values) for replay in self._replays)
        for data_set, each in zip(self._question.sets, replayed, strict=True):
            if each is not None:
                check_counts(data_set, each.counts)
        return replayed

    def _of_steps(self) -> dict[str, Fitted]:
        """Return the values fitted to iterations."""
        question, fit = self._question, self._question.by_steps()
        sets = [each for each in question.sets if each.steps is not None and not each.is_held]
        prices = {key: each for key, each in fit.items() if key in PRICES}
        found: dict[str, Fitted] = {}
        if prices:
            problem = problem_of([(each.steps, prices_in(each.experiment_of({}))) for each in sets], prices)
            values, sure = solved(problem), of_steps(problem, prices, question.seed)
            found = {key: Fitted(float(value), sure[key], STEPS) for key, value in zip(prices, values, strict=True)}
        if GAP in fit:
            gaps = np.concatenate([np.where(each.steps.is_held, np.nan, gaps_us(each.steps)) for each in sets])
            value = gap_us(gaps, fit[GAP])
            found[GAP] = Fitted(value, of_gaps(gaps, GAP, fit[GAP], question.seed)[GAP], STEPS)
        return found

    def _residual(self, values: Mapping[str, float]) -> Fit | None:
        """Return the residual on top of fitted values; later simulations use its file."""
        asked = self._question.settings.residual
        if asked is None:
            return None
        sets = [each for each in self._question.sets if each.steps is not None and not each.is_held]
        experiments = [each.experiment_of(values) for each in sets]
        check_one_server(sets, experiments)
        logs = [priced(each.steps, one) for each, one in zip(sets, experiments, strict=True)]
        found = fit_residual(logs, experiments[0], asked.scope, asked.most_ratio)
        write_table(self._folder / FILE, found.table)
        self._fixed = {"latency.residual": str(self._folder / FILE)}
        return found

    def _of_requests(self, settled: Mapping[str, float]) -> tuple[dict[str, Fitted], float]:
        """Return the values fitted to requests, and the least objective; `settled` : keys fitted to iterations."""
        question, fit = self._question, self._question.by_requests()
        chosen = [(each, replay) for each, replay in zip(question.sets, self._replays, strict=True)
                  if replay is not None and not each.is_held]

        def pairs_at(values: dict[str, float]) -> list:
            whole = {**settled, **values}
            return [compared(each, self._replay(replay, whole), ~each.requests.is_held) for each, replay in chosen]

        def residuals_at(values: dict[str, float]) -> np.ndarray:
            return np.concatenate([quantile_residuals(pairs) for pairs in pairs_at(values)]) / np.sqrt(len(chosen))

        def evaluate(values: dict[str, float]) -> float:
            known = self._evaluations.known({**settled, **values})
            if known is None:
                known = objective(pairs_at(values), values, fit)
                self._evaluations.keep({**settled, **values}, known)
            self._count += 1
            self._best = min(self._best, known)
            self._tell(self._count, self._best)
            return known

        values = least(evaluate, residuals_at, fit, question.settings.evaluations, question.seed)
        box = reach_of(residuals_at, values, fit, SEEN)
        now = residuals_at(values)
        seen = [any((residuals_at({**values, key: at}) != now).any() for at in (
            max(values[key] - by, fit[key].min), min(values[key] + by, fit[key].max)))
                for key, by in zip(fit, box.tolist(), strict=True)]
        samples = [self._sample(each, replay, settled, values, box) for each, replay in chosen]
        sure = of_requests(samples, box, seen, values, fit, question.seed)
        return {key: Fitted(values[key], sure[key], REQUESTS) for key in fit}, self._best

    def _sample(self, data_set: DataSet, replay: Replay, settled: Mapping[str, float], values: Mapping[str, float],
                box: np.ndarray) -> Sample:
        """Return how the times of requests change with each key, by planes through simulations around the values."""
        fit, rows = self._question.by_requests(), ~data_set.requests.is_held
        centre = np.array([values[key] for key in fit])
        draw = RandomStreams(self._question.seed).generator("study.confidence")
        points = [centre, *around(centre, box, fit, draw)]
        runs = [self._replay(replay, {**settled, **dict(zip(fit, at.tolist(), strict=True))}).times for at in points]
        moved, nudged = np.array(points) - centre, [{} for _ in fit]
        for name in METRICS:
            logs = np.log(np.maximum(np.array([times[name][rows] for times in runs]), LEAST_MS))
            _, slopes = plane(moved, np.where(np.isfinite(logs), logs, 0.0), box)
            for i in range(len(fit)):
                nudged[i][name] = runs[0][name][rows] * np.exp(slopes[:, i] * box[i])
        measured, simulated = ({name: times[name][rows] for name in METRICS}
                               for times in (data_set.requests.times, runs[0]))
        return Sample(data_set.requests.sent_s[rows], measured, simulated, tuple(nudged))

    def _replay(self, replay: Replay, values: Mapping[str, float]) -> Replayed:
        if self._is_over():
            raise Stopped
        return replay({**values, **self._fixed})

    def _graded(self, values: Mapping[str, float], replayed: tuple[Replayed | None, ...],
                is_held: bool) -> dict[str, Any] | None:
        """Return the grades of the held-out data, or of the rest; None: there is nothing to grade."""
        question = self._question
        found: dict[str, Any] = {}
        for metric, name in NAMES.items():
            found[name] = _grade(
                (*compared(each, times, each.requests.is_held == is_held)[metric],
                 blocks_of(each.requests.sent_s[each.requests.is_held == is_held]))
                for each, times in zip(question.sets, replayed, strict=True) if times is not None)
        found[STEP] = _grade(_steps_of(each, {**values, **self._fixed}, is_held) for each in question.sets
                             if each.steps is not None and _is_priced(each, {**values, **self._fixed}))
        if all(each is None for each in found.values()):
            return None
        counts = [times.counts for each, times in zip(question.sets, replayed, strict=True)
                  if times is not None and (each.requests.is_held == is_held).any()]
        return found | {"counts": sum(counts, Counts())._asdict()}

    def _notes(self, found: Mapping[str, Fitted]) -> Iterable[str]:
        question = self._question
        for key, each in found.items():
            bounds = question.fit[key]
            if each.value in (bounds.min, bounds.max) and each.value != 0.0:
                yield f"{key} = {each.value:g} lies at its bound."
        if "latency.per_context_token_us" in question.by_steps():
            yield ("context_tokens of steps.csv are those of all sequences, prompts among them; linear prices those of "
                   "decodes.")
        for replay in self._replays:
            yield from replay.notes if replay is not None else ()


class Stopped(Exception):
    """No further simulation may start."""


def _is_priced(data_set: DataSet, values: Mapping[str, float]) -> bool:
    """Return whether the durations of iterations follow from their counts and prices."""
    experiment = data_set.experiment_of(values)
    return (experiment.latency.backend == LINEAR or experiment.latency.residual is not None) and not experiment.pools


def _steps_of(data_set: DataSet, values: Mapping[str, Any], is_held: bool):
    steps, experiment = data_set.steps, data_set.experiment_of(values)
    rows = steps.is_held == is_held
    if experiment.latency.residual is not None:
        found = priced(steps, experiment)
        return found.duration_us[rows] / US_PER_MS, found.prior_us[rows] / US_PER_MS, found.blocks[rows]
    predicted = predicted_us(steps, prices_in(experiment))
    starts = np.where(np.isfinite(steps.columns["start_s"]), steps.columns["start_s"],
                      np.cumsum(steps.duration_us) / US_PER_S)
    return steps.duration_us[rows] / US_PER_MS, predicted[rows] / US_PER_MS, blocks_of(starts[rows])


def _grade(parts) -> dict[str, Any] | None:
    """Return the grade of data sets together; each: measured, simulated, blocks."""
    parts = list(parts)
    if not parts:
        return None
    return grade(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _add_headlines(level: str, training: dict[str, Any], held: dict[str, Any] | None) -> None:
    """Add the headline errors: of iterations, where both sides have them, or the mean over TTFT, TPOT, E2EL."""
    sides = [training] if held is None else [training, held]
    is_of_steps = level == STEPS and all(side[STEP] is not None for side in sides)
    for side in sides:
        chosen = [side[name]["request_level"] for name in ([STEP] if is_of_steps else NAMES.values())
                  if side[name] is not None]
        side["headline"] = STEP if is_of_steps else "requests"
        for name in ("mape", "median_ape"):
            values = [each[name] for each in chosen if each[name] is not None]
            side[name] = float(np.mean(values)) if values else None


def values_now(question: Question, keys: Iterable[str]) -> dict[str, Any]:
    """Return the values of keys in the first experiment."""
    experiment = question.sets[0].experiment_of({})
    return {key: value_of(experiment, key) for key in keys}
