"""Candidates chosen by a sampler: Optuna's TPE, CMA-ES or NSGA-II.

Optuna's ask/report interface, seeded with the experiment's seed; batches do not depend on the number of processes. The
first candidate has the experiment's own values, as far as axes hold them.
"""
from typing import Any

from simulator.errors import InputErrors
from simulator.study.sweep.identity import canonical
from simulator.study.tuning.candidates import Candidate, Candidates, Dropped, candidates_of
from simulator.study.tuning.findings import Findings
from simulator.study.tuning.pruning import why_not
from simulator.study.tuning.racing import as_of_all_seeds, raced
from simulator.study.tuning.result import ELIMINATED, FEASIBLE, MISSED, CandidateResult, Trier
from simulator.study.tuning.samplers import own_values, study_of, value_of
from simulator.study.tuning.sampling_rules import OPTUNA
from simulator.study.tuning.tune_table import AGGREGATED, AS_IT_IS, Question

MOST_IDLE = 20                  # rounds without a new candidate, after which a search ends
FAR = 1.0                       # constraint value of a candidate that cannot run: as if it missed a bound by 100 %


def sampled(question: Question, trier: Trier, candidates: Candidates | None) -> Findings:
    """Try candidates that a sampler chooses, until its patience ends.

    They are `max_trials` at most.

    Parameters
    ----------
    candidates : all candidates; None: too many to enumerate.

    Raises
    ------
    MissingExtra
        Optuna is not installed.
    """
    asked = _Asked(question, trier, candidates)
    most, idle = question.settings.max_trials, 0
    while len(asked.results) < most and idle < MOST_IDLE and not asked.has_all and not asked.is_impatient:
        before = len(asked.results) + len(asked.dropped)
        asked.round(min(question.settings.at_once, most - len(asked.results)))
        idle = 0 if len(asked.results) + len(asked.dropped) > before else idle + 1
    dropped = list(asked.dropped.values()) if candidates is None else candidates.dropped
    eliminated = [each for each in asked.results.values() if each.status == ELIMINATED]
    results = [each for each in asked.results.values() if each.status != ELIMINATED]
    return Findings(OPTUNA, results, dropped, eliminated, asked.has_all and not eliminated)


class _Asked:
    """A study of Optuna, and the results of the candidates that it chose.

    results, dropped : by the candidate's assignment.
    best : result with the best value of one objective so far; None: several objectives, or none is feasible.
    """

    def __init__(self, question: Question, trier: Trier, candidates: Candidates | None):
        self.results: dict[str, CandidateResult] = {}
        self.dropped: dict[str, Dropped] = {}
        self.best: CandidateResult | None = None
        self._question, self._trier = question, trier
        self._count = None if candidates is None else len(candidates.kept)
        self._most_merit, self._since_best = (-1, 0.0), 0
        self._study = study_of(question)
        if own := own_values(question):
            self._study.enqueue_trial(own)
        settings, has_pools = question.settings, bool(question.study.base.pools)
        self._layouts = (AS_IT_IS,) if has_pools else settings.layouts or (AGGREGATED,)

    @property
    def has_all(self) -> bool:
        """Whether nothing is left to try."""
        return self._count is not None and len(self.results) >= self._count

    @property
    def is_impatient(self) -> bool:
        """Whether the last candidates, as many as `patience`, were no better."""
        patience = self._question.settings.patience
        return patience is not None and self._since_best >= patience

    def round(self, size: int) -> None:
        """Request some candidates, try the new ones, and report all results to Optuna."""
        asks = [(trial, self._candidate(trial)) for trial in (self._study.ask() for _ in range(size))]
        new: dict[str, Candidate] = {}
        for _, (key, candidate) in asks:
            if candidate is not None and key not in self.results and key not in self.dropped:
                drop = why_not(candidate)
                if drop is None:
                    new.setdefault(key, candidate._replace(number=len(self.results) + len(new)))
                else:
                    self.dropped[key] = drop
        for key, found in zip(new, self._results_of(list(new.values())), strict=True):
            self.results[key] = found
            self._note(found)
        for trial, (key, _) in asks:
            self._say(trial, self.results.get(key))

    def _results_of(self, candidates: list[Candidate]) -> list[CandidateResult]:
        if self._question.settings.racing:
            return raced(self._question, self._trier, candidates, self.best)
        return self._trier.try_all(candidates)

    def _note(self, result: CandidateResult) -> None:
        """Count a result for the patience, and keep the best; of several objectives there is none."""
        if len(self._question.objectives) > 1:
            return
        self._since_best += 1
        merit = _merit_of(self._question, result)
        if merit > self._most_merit:
            self._most_merit, self._since_best = merit, 0
            self.best = result if result.status == FEASIBLE else self.best

    def _candidate(self, trial: Any) -> tuple[str, Candidate | None]:
        """Return the candidate that a trial chooses, and its key: layout and assignment."""
        study = self._question.study
        point = {axis.key: value_of(axis, trial) for axis in study.axes}
        layout = trial.suggest_categorical("layout", self._layouts) if len(self._layouts) > 1 else self._layouts[0]
        one = study._replace(settings=_with_layout(self._question, layout))
        try:
            made = candidates_of(one, [point])
        except InputErrors as errors:           # incompatible values
            key = canonical([layout, point])
            self.dropped.setdefault(key, Dropped(Candidate(-1, layout, point, None, 0), "forbidden",
                                                 "; ".join(errors.faults)))
            return key, None
        for drop in made.dropped:
            self.dropped.setdefault(canonical([layout, drop.candidate.assignment]), drop)
        if not made.kept:
            return canonical([layout, point]), None
        share = trial.suggest_float(f"{layout}.which", 0.0, 1.0) if len(made.kept) > 1 else 0.0
        candidate = made.kept[min(int(share * len(made.kept)), len(made.kept) - 1)]
        return canonical([layout, candidate.assignment]), candidate

    def _say(self, trial: Any, result: CandidateResult | None) -> None:
        """Report the result of a trial to Optuna."""
        import optuna

        misses = FAR if result is None or result.margin != result.margin else max(-result.margin, 0.0)
        if result is not None and result.status in (FEASIBLE, ELIMINATED):
            misses = 0.0
        values = None if result is None or not result.values else [value.mean for value in result.values]
        if result is not None and result.status == ELIMINATED:
            values = [as_of_all_seeds(self._question, result, self.best)]
        if values is None or any(value != value for value in values):
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
            return
        if self._question.bounds.bounds:
            trial.set_constraint("misses", misses)
        self._study.tell(trial, values)


def _with_layout(question: Question, layout: str):
    from msgspec.structs import replace

    return question.settings if layout == AS_IT_IS else replace(question.settings, layouts=(layout,))


def _merit_of(question: Question, result: CandidateResult) -> tuple[int, float]:
    """Return a rank by feasibility, then by value or nearness to the bounds; the larger the better."""
    if result.status == FEASIBLE:
        return 1, question.objectives[0].gain(result.values[0].mean)
    if result.status == MISSED and result.margin == result.margin:
        return 0, result.margin
    return -1, 0.0
