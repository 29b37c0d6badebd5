"""Searches over candidates: exhaustive, or halving (all with few requests, the best with more)."""
from collections.abc import Callable

import numpy as np

from simulator.errors import InputErrors
from simulator.study.sweep.laboratory import Laboratory
from simulator.study.sweep.study_file import values_alone
from simulator.study.sweep.trial import DONE
from simulator.study.telling.screen import figure
from simulator.study.tuning.candidates import Candidate, Candidates, Dropped, candidates_of
from simulator.study.tuning.findings import Findings
from simulator.study.tuning.halving import ETA, rungs, survivors
from simulator.study.tuning.pareto import front
from simulator.study.tuning.pruning import BOUND, bound_of, why_not
from simulator.study.tuning.ranking import values_of
from simulator.study.tuning.result import FEASIBLE, MISSED, CandidateResult, Trier, check_objectives
from simulator.study.tuning.sampled import sampled
from simulator.study.tuning.sampling_rules import AUTO, OPTUNA
from simulator.study.tuning.tune_table import EXHAUSTIVE, HALVING, Question, num_requests_of

MOST_EXHAUSTIVE = 2_000               # candidates, with search = "auto"
FIRST_ROUND = 8                 # of a search with a bound; each round is twice as long
FEW_REQUESTS = 8                # of a run that only shows which numbers a run has
LEAST_REQUESTS = 100            # of the first round of halving
MOST_POINTS = 50_000            # of the axes, that are enumerated one by one
SHARE_OF_FIRST = 27             # of the experiment's requests


def pruned(candidates: Candidates) -> Candidates:
    """Return the candidates that can run, by layout and memory plan."""
    kept, dropped = [], list(candidates.dropped)
    for candidate in candidates.kept:
        drop = why_not(candidate)
        if drop is None:
            kept.append(candidate)
        else:
            dropped.append(drop)
    return Candidates(kept, dropped)


def chosen_search(question: Question, count: int) -> str:
    """Return the name of the search for a number of candidates.

    Raises
    ------
    InputErrors
        There are more candidates than the study allows.
    """
    given, place = question.settings, f"{question.study.file}: study"
    if given.search == AUTO:
        if count <= min(MOST_EXHAUSTIVE, given.max_trials):
            return EXHAUSTIVE
        return HALVING if count <= given.max_trials and num_requests_of(question.study) else OPTUNA
    if given.search != OPTUNA and count > given.max_trials:
        raise InputErrors([f"{place}.max_trials: {count:,} candidates, {given.max_trials:,} are allowed; "
                           f'search = "optuna" tries some of them'])
    return given.search


def exhaustive(question: Question, trier: Trier, candidates: Candidates) -> Findings:
    """Try all candidates except those ruled out by a bound of the objective.

    Rounds do not depend on how many processes run them.
    """
    bound = bound_of(question)
    if bound is None:
        return Findings(EXHAUSTIVE, trier.try_all(candidates.kept), candidates.dropped, [], True)
    results, dropped = _by_bound(trier, candidates.kept, bound)
    return Findings(EXHAUSTIVE, results, candidates.dropped + dropped, [], True)


def _by_bound(trier: Trier, candidates: list[Candidate],
              bound: Callable[[Candidate], float]) -> tuple[list[CandidateResult], list[Dropped]]:
    """Try those with the largest bound first, until the bounds of all others are below the best value.

    Candidates that could just reach the best value are tried: ties go to fewer GPUs.
    """
    bounds = {each.number: bound(each) for each in candidates}
    waiting = sorted(candidates, key=lambda each: (-bounds[each.number], each.number))
    results: list[CandidateResult] = []
    best, size = -np.inf, FIRST_ROUND
    while waiting and bounds[waiting[0].number] >= best:
        now = [each for each in waiting[:size] if bounds[each.number] >= best]
        found = trier.try_all(now)
        results += found
        best = max([best, *(each.values[0].mean for each in found if each.status == FEASIBLE)])
        waiting, size = waiting[len(now):], 2 * size
    return results, [Dropped(each, BOUND, f"at most {figure(bounds[each.number])}, {figure(best)} was reached")
                     for each in waiting]


def halving(question: Question, trier: Trier, candidates: Candidates) -> Findings:
    """Try all with few requests, the best third with three times as many, and so on.

    Candidates that miss the bounds rank below all that keep them, nearest first: few requests may miss by chance.
    """
    most = num_requests_of(question.study)
    first = question.settings.first_requests or max(most // SHARE_OF_FIRST, LEAST_REQUESTS)
    left, eliminated = candidates.kept, []
    for count in rungs(len(left), first, most):
        if count >= most:
            break
        found = trier.try_all(left, count)
        goes_on = {found[i].candidate.number for i in _best(question, found)}
        eliminated += [each for each in found if each.candidate.number not in goes_on]
        left = [each for each in left if each.number in goes_on]
    return Findings(HALVING, trier.try_all(left), candidates.dropped, eliminated, not eliminated)


def _best(question: Question, found: list[CandidateResult]) -> list[int]:
    """Return the candidates that go on: a third, those that keep the bounds first."""
    good = [i for i, each in enumerate(found) if each.status == FEASIBLE]
    num_kept = -(-sum(each.status in (FEASIBLE, MISSED) for each in found) // ETA)
    best = [good[i] for i in _best_of([found[i] for i in good], question, num_kept)]
    missed = [i for i, each in enumerate(found) if each.status == MISSED]
    missed.sort(key=lambda i: (-np.nan_to_num(found[i].margin, nan=-np.inf), i))
    return best + missed[:max(num_kept - len(best), 0)]


def _best_of(found: list[CandidateResult], question: Question, num_kept: int) -> list[int]:
    if len(found) <= num_kept:
        return list(range(len(found)))
    if len(question.objectives) == 1:
        values, widths = values_of(question, found)
        return survivors(question.objectives[0].gain(1.0) * values[:, 0], widths[:, 0], num_kept).tolist()
    return _best_fronts(question, found, num_kept)


def _best_fronts(question: Question, found: list[CandidateResult], num_kept: int) -> list[int]:
    """Return whole fronts of the means, and every candidate that no survivor dominates beyond noise."""
    values, widths = values_of(question, found)
    gains = values * [1.0 if each.is_larger_better else -1.0 for each in question.objectives]
    widths, best = np.nan_to_num(widths), np.zeros(len(found), bool)
    while best.sum() < num_kept:
        left = np.flatnonzero(~best)
        best[left[front(gains[left], np.ones(gains.shape[1], bool))]] = True
    sure = (gains - widths)[best]
    best |= [not (sure >= most).all(axis=1).any() for most in gains + widths]
    return np.flatnonzero(best).tolist()


def searched(question: Question, trier: Trier, candidates: Candidates | None) -> Findings:
    """Search as a study says.

    candidates : from `feasible_of`.

    Raises
    ------
    InputErrors
        More candidates than are allowed.
    MissingExtra
        The search is "optuna", and Optuna is not installed.
    """
    search = OPTUNA if candidates is None else chosen_search(question, len(candidates.kept))
    if search == OPTUNA:
        return sampled(question, trier, candidates)
    return (exhaustive if search == EXHAUSTIVE else halving)(question, trier, candidates)


def check_numbers(question: Question, candidates: Candidates | None) -> None:
    """Make sure that runs have the numbers that objectives and bounds name.

    The first candidate runs with few requests; its result is discarded. Where it does not run, the check is made on
    the first completed run of the search.

    Raises
    ------
    InputErrors
        An objective or bound is not a number of a run.
    """
    if candidates is None or not candidates.kept:
        return
    count = num_requests_of(question.study)
    laboratory = Laboratory(question.study)
    trial = laboratory.trial(candidates.kept[0].assignment, question.study.base.seed, 0,
                             count and min(count, FEW_REQUESTS))
    for end in laboratory.run([trial]):
        if end.status == DONE:
            check_objectives(question, end)


def feasible_of(question: Question) -> Candidates | None:
    """Return all candidates that can run; None: they are too many to enumerate.

    Raises
    ------
    InputErrors
        Values of axes with which no candidate is an experiment; more points than can be enumerated.
    """
    study, given = question.study, question.settings
    if study.has_ranges:
        candidates_of(study, values_alone(study))       # refuses values that are wrong by themselves
        return None
    count = study.count()
    if count <= MOST_POINTS:
        return pruned(candidates_of(study, list(study.points())))
    if given.search in (EXHAUSTIVE, HALVING) or given.design != "grid" or given.exclude or given.only:
        raise InputErrors([f'{study.file}: study: {count:,} points, at most {MOST_POINTS:,}; search = "optuna" over a '
                           "grid tries some of more"])
    return None
