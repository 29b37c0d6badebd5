"""Candidates chosen by a sampler: Optuna's TPE for one objective, NSGA-II for several.

Optuna's ask/report interface, seeded with the experiment's seed; batches do not depend on the number of processes.
"""
from typing import Any

from simulator.errors import InputErrors, MissingExtra
from simulator.study.sweep.identity import canonical
from simulator.study.tuning.candidates import Candidate, Candidates, Dropped, candidates_of
from simulator.study.tuning.findings import Findings
from simulator.study.tuning.pruning import why_not
from simulator.study.tuning.result import FEASIBLE, CandidateResult, Trier
from simulator.study.tuning.tune_table import AGGREGATED, AS_IT_IS, OPTUNA, Question

INSTALL = "pip install 'simulator[tune]'"
AT_ONCE = 16                    # candidates that one batch requests
MOST_IDLE = 20                  # rounds without a new candidate, after which a search ends
FAR = 1.0                       # constraint value of a candidate that cannot run: as if it missed a bound by 100 %


def sampled(question: Question, trier: Trier, candidates: Candidates | None) -> Findings:
    """Try candidates that a sampler chooses, `max_trials` at most.

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
    while len(asked.results) < most and idle < MOST_IDLE and not asked.has_all:
        before = len(asked.results) + len(asked.dropped)
        asked.round(min(AT_ONCE, most - len(asked.results)))
        idle = 0 if len(asked.results) + len(asked.dropped) > before else idle + 1
    dropped = list(asked.dropped.values()) if candidates is None else candidates.dropped
    return Findings(OPTUNA, list(asked.results.values()), dropped, [], asked.has_all)


class _Asked:
    """A study of Optuna, and the results of the candidates that it chose.

    results, dropped : by the candidate's assignment.
    """

    def __init__(self, question: Question, trier: Trier, candidates: Candidates | None):
        self.results: dict[str, CandidateResult] = {}
        self.dropped: dict[str, Dropped] = {}
        self._question, self._trier = question, trier
        self._count = None if candidates is None else len(candidates.kept)
        self._study = _study_of(question)
        settings, has_pools = question.settings, bool(question.study.base.pools)
        self._layouts = (AS_IT_IS,) if has_pools else settings.layouts or (AGGREGATED,)

    @property
    def has_all(self) -> bool:
        """Whether nothing is left to try."""
        return self._count is not None and len(self.results) >= self._count

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
        for key, found in zip(new, self._trier.try_all(new.values()), strict=True):
            self.results[key] = found
        for trial, (key, _) in asks:
            self._say(trial, self.results.get(key))

    def _candidate(self, trial: Any) -> tuple[str, Candidate | None]:
        """Return the candidate that a trial chooses, and its key: layout and assignment."""
        study = self._question.study
        point = {axis.key: axis.values[trial.suggest_int(axis.key, 0, len(axis.values) - 1)] for axis in study.axes}
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
        if result is not None and result.status == FEASIBLE:
            misses = 0.0
        values = None if result is None or not result.values else [value.mean for value in result.values]
        if values is None or any(value != value for value in values):
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
            return
        trial.set_constraint("misses", misses)
        self._study.tell(trial, values)


def _with_layout(question: Question, layout: str):
    from msgspec.structs import replace

    return question.settings if layout == AS_IT_IS else replace(question.settings, layouts=(layout,))


def _study_of(question: Question) -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingExtra([f'{question.study.file}: study.search: "optuna" needs Optuna: install it with '
                            f"{INSTALL}"]) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    seed = question.study.base.seed % 2**32
    sampler = optuna.samplers.TPESampler if len(question.objectives) == 1 else optuna.samplers.NSGAIISampler
    return optuna.create_study(
        directions=["maximize" if each.is_larger_better else "minimize" for each in question.objectives],
        sampler=sampler(seed=seed))
