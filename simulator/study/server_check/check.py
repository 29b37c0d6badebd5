"""The check of a server: its series against runs, and causes ranked by them."""
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from simulator.errors import InputErrors
from simulator.study.server_check.causes import CAUSES, Cause, Situation
from simulator.study.server_check.changes import NOTHING, Change
from simulator.study.server_check.demand import Demand, demand_of
from simulator.study.server_check.features import FEATURES, numbers_of, predicted_numbers
from simulator.study.server_check.likelihood import Fit, fit, log_likelihood, speeds
from simulator.study.server_check.series import ServerSeries
from simulator.study.server_check.simulated import Subject, mean_prompt_tokens, simulated

SEEDS, CAUSE_SEEDS = 9, 5
REFINED = 10                    # changes with several runs
PRICE_ERROR = 0.1               # standard deviation of the logarithm of all prices together
INTERVAL, INTERVAL_SHARE = 1.96, 0.95       # standard deviations of an expected interval, and the runs within
MARGIN = 3.0                    # logarithms: a cause explains the series much better than the experiment
LONGEST_S = 600.0               # of a series that is simulated


class Row(NamedTuple):
    """A measured number beside its expected interval; is_inside : it is within."""

    name: str
    title: str
    unit: str
    measured: float
    expected: float
    low: float
    high: float

    @property
    def is_inside(self) -> bool:
        """Return whether the measured number is within the interval."""
        return bool(self.low <= self.measured <= self.high)


class Ranked(NamedTuple):
    """A cause, most likely first.

    change : its best variant. gain : logarithm of its likelihood by that of the experiment as it is. share : of the
    likelihood of all causes and of none.
    """

    cause: Cause
    change: Change
    gain: float
    share: float


class Answer(NamedTuple):
    """The answer.

    is_right : no cause explains the series much better than the experiment. ranked : all causes that can be simulated.
    """

    rows: list[Row]
    ranked: list[Ranked]
    is_right: bool
    span_s: float
    arrivals: int | None
    series: ServerSeries
    refused: dict[str, str]


class Runs:
    """Runs of the experiment and its changes under the demand of a series."""

    def __init__(self, subject: Subject, series: ServerSeries, price_error: float = PRICE_ERROR):
        subject.check()
        experiment = subject.experiment(NOTHING)
        self.experiment, self.subject, self.price_error = experiment, subject, price_error
        self.times_s = series.times_s - series.times_s[0]
        tokens = mean_prompt_tokens(experiment)
        self.demand: Demand | None = None if tokens is None else demand_of(series, tokens)

    def numbers(self, change: Change, run: int, error: float) -> np.ndarray:
        """Return the features of one run; error : of its prices, in standard deviations."""
        found = simulated(self.subject, change, self.experiment.seed + run, float(np.exp(error * self.price_error)),
                          self.times_s, self.demand)
        return predicted_numbers(found.series, found.planned_per_s)

    def fit(self, change: Change, count: int, usual: Fit | None = None) -> Fit:
        """Return the fit of several runs of a change."""
        errors = speeds(count)
        order = (7 * np.arange(count)) % count if count % 7 else np.arange(count)
        return fit(np.array([self.numbers(change, run, errors[place]) for run, place in enumerate(order)]),
                   errors[order], usual)


def check(subject: Subject, series: ServerSeries, price_error: float = PRICE_ERROR,
          causes: Iterable[Cause] = CAUSES) -> Answer:
    """Compare a server with an experiment.

    price_error : standard deviation of the logarithm of all iteration times together. causes : that are ranked.

    Raises
    ------
    InputErrors
        The experiment cannot be read or run; it has several pools.
    """
    series = series.until(LONGEST_S)
    runs, measured = Runs(subject, series, price_error), numbers_of(series)
    usual = runs.fit(NOTHING, SEEDS)
    rows = _rows(series, usual)
    ranked, refused = _ranked(runs, measured, usual, rows, causes)
    is_right = not ranked or ranked[0].gain < MARGIN
    arrivals = None if runs.demand is None else int(runs.demand.counts.sum())
    return Answer(rows, ranked, is_right, series.span_s, arrivals, series, refused)


def _rows(series: ServerSeries, usual: Fit) -> list[Row]:
    found = []
    for feature, mean, width in zip(FEATURES, usual.mean, usual.width, strict=True):
        measured = feature.of(series)
        if not np.isnan(measured + mean):
            off = 0.0 if feature.is_exact else INTERVAL * width
            expected, low, high = (feature.back(value) for value in (mean, mean - off, mean + off))
            if feature.is_exact:
                expected = low = high = round(expected)
            found.append(Row(feature.name, feature.title, feature.unit, float(measured), expected, low, high))
    return found


class _Likely(NamedTuple):
    """A change, and the logarithm of the likelihood of the series under it."""

    cause: Cause
    change: Change
    likelihood: float


def _ranked(runs: Runs, measured: np.ndarray, usual: Fit, rows: list[Row],
            causes: Iterable[Cause]) -> tuple[list[Ranked], dict[str, str]]:
    """Return all causes, ranked, and the changes that cannot run.

    Each change has one run; those that explain the series best have several.
    """
    at = Situation(runs.experiment, {row.name: row.measured for row in rows}, {row.name: row.expected for row in rows})
    likely, refused = [], {}
    for cause in causes:
        for change in cause.changes(at):
            try:
                trial = fit(runs.numbers(change, 0, 0.0)[None], np.zeros(1), usual)
            except InputErrors as error:
                refused[change.text] = error.faults[0]
                continue
            likely.append(_Likely(cause, change, log_likelihood(measured, trial)))
    likely.sort(key=lambda each: -each.likelihood)
    likely[:REFINED] = [each._replace(likelihood=log_likelihood(measured, runs.fit(each.change, CAUSE_SEEDS, usual)))
                       for each in likely[:REFINED]]
    # As often and with the same seeds as a change, so that a change without an effect is as likely as none.
    return _shares(likely, log_likelihood(measured, runs.fit(NOTHING, CAUSE_SEEDS, usual))), refused


def _shares(likely: list[_Likely], base: float) -> list[Ranked]:
    """Return the causes, most likely first.

    A cause is as likely as its changes are on the mean.
    """
    found = []
    for cause in dict.fromkeys(each.cause for each in likely):
        of_cause = [each for each in likely if each.cause is cause]
        best = max(of_cause, key=lambda each: each.likelihood)
        mean = np.log(np.mean([np.exp(each.likelihood - best.likelihood) for each in of_cause])) - cause.fitted
        found.append((cause, best.change, float(best.likelihood + mean - base)))
    top = max([0.0, *(gain for _, _, gain in found)])
    total = np.exp(-top) + sum(np.exp(gain - top) for _, _, gain in found)
    found.sort(key=lambda each: -each[2])
    return [Ranked(cause, change, gain, float(np.exp(gain - top) / total)) for cause, change, gain in found]
