"""A race of candidates over seeds: which are surely worse than the best run no further.

All run on the same seeds, so that differences are paired. Source: Maron and Moore, The Racing Algorithm: Model
Selection for Lazy Learners, Artificial Intelligence Review 11, 1997; with intervals of paired differences, their
confidence shared over the looks (Bonferroni), in place of Hoeffding's bound.
"""
import math

from simulator.study.statistics.intervals import Estimate, of_pairs
from simulator.study.tuning.at_load import AtLoad
from simulator.study.tuning.candidates import Candidate
from simulator.study.tuning.objectives import numbers_of
from simulator.study.tuning.result import ELIMINATED, FEASIBLE, MISSED, CandidateResult
from simulator.study.tuning.tune_table import Question


def looks(num_seeds: int) -> list[int]:
    """Return the numbers of seeds after which candidates may be dropped."""
    found, count = [], 2        # then 3, 5, 8, 12, ...
    while count < num_seeds:
        found.append(count)
        count += (count + 1) // 2
    return found


def raced(question: Question, trier: AtLoad, candidates: list[Candidate],
          best: CandidateResult | None) -> list[CandidateResult]:
    """Return the results of candidates, in their order; dropped ones have fewer seeds.

    Without bounds the leader among the candidates counts, too: with them it may miss a bound later.

    Parameters
    ----------
    best : of the candidates before, with all seeds; None: none is feasible.
    """
    left, ended = candidates, {}
    counts = looks(len(question.study.seeds))
    for count in counts:
        if len(left) + (best is not None) < 2:
            break
        found = trier.look(left, count)
        leader = _leader(question, found, best, count)
        for each in found:
            if each.status not in (FEASIBLE, MISSED):
                ended[each.candidate.number] = each
            elif leader is not None and (why := _why_worse(question, each, leader, count, len(counts))):
                ended[each.candidate.number] = each._replace(status=ELIMINATED, why=why)
        left = [each for each in left if each.number not in ended]
    ended |= {each.candidate.number: each for each in trier.try_all(left)}
    return [ended[each.number] for each in candidates]


def as_of_all_seeds(question: Question, result: CandidateResult, best: CandidateResult | None) -> float:
    """Return the value of a dropped candidate as if it had run on all seeds.

    It is the best one's value on all seeds, and the difference on the seeds that both have.
    """
    own = _values_of(question, result)
    if best is None:
        return sum(own) / len(own)
    others = _values_of(question, best)
    return sum(others) / len(others) + sum(mine - other for mine, other in zip(own, others, strict=False)) / len(own)


def _leader(question: Question, found: list[CandidateResult], best: CandidateResult | None,
            count: int) -> CandidateResult | None:
    field = [] if best is None else [best]
    if not question.bounds.bounds:
        field += [each for each in found if each.status == FEASIBLE]
    gain = question.objectives[0].gain
    return max(field, key=lambda each: gain(sum(_values_of(question, each)[:count])), default=None)


def _why_worse(question: Question, result: CandidateResult, leader: CandidateResult, count: int,
               num_looks: int) -> str:
    """Return why a candidate is surely worse than the leader; empty: it may be as good."""
    if result is leader:
        return ""
    alpha = (1 - question.settings.statistics.confidence) / num_looks
    objective = question.objectives[0]
    behind: Estimate = of_pairs(_values_of(question, result)[:count], _values_of(question, leader)[:count], 1 - alpha)
    gained = objective.gain(behind.mean)
    if math.isnan(behind.half_width) or gained + behind.half_width >= 0:
        return ""
    return f"worse than the best by {abs(behind.mean):.6g} +- {behind.half_width:.2g} on {count} equal seeds"


def _values_of(question: Question, result: CandidateResult) -> list[float]:
    """Return the values of the objective, one for each seed; NaN: there is nothing to measure."""
    key = question.objectives[0].key
    found = [numbers_of(end, result.candidate.experiment, result.rate)[key] for end in result.ends]
    return [math.nan if value is None else value for value in found]
