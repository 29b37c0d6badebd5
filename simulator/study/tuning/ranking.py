"""The order of feasible candidates, and the Pareto front."""
import numpy as np

from simulator.study.capacity.point_search import cost_per_hour
from simulator.study.tuning.pareto import front
from simulator.study.tuning.result import FEASIBLE, CandidateResult
from simulator.study.tuning.tune_table import Question


def values_of(question: Question, results: list[CandidateResult]) -> tuple[np.ndarray, np.ndarray]:
    """Return values and half-widths of objectives, float64 (candidates, objectives).

    Half-widths are 0 with epsilon = "none".
    """
    shape = (len(results), len(question.objectives))
    values = np.array([[value.mean for value in each.values] for each in results]).reshape(shape)
    widths = np.array([[value.half_width for value in each.values] for each in results]).reshape(shape)
    return values, widths if question.settings.epsilon == "ci" else np.zeros(shape)


def pareto(question: Question, results: list[CandidateResult]) -> np.ndarray:
    """Return a mask of the candidates that no other dominates, bool (candidates,)."""
    values, widths = values_of(question, results)
    return front(values, np.array([each.is_larger_better for each in question.objectives]), widths)


def ranked(question: Question, results: list[CandidateResult]) -> tuple[list[CandidateResult], set[int]]:
    """Return feasible candidates, the best first, and the numbers on the front.

    Candidates on the front come first, then the front of the rest, until `winners` candidates have a rank; the
    remaining ones follow by the first objective. With one objective, candidates on one front are equal but for noise:
    the one with fewer GPUs wins, then the lower price, the better value, more room to the bounds, the one that comes
    first in the axes; of a sampler's the one chosen first: there the experiment's own values win if nothing differs.
    """
    left = [each for each in results if each.status == FEASIBLE]
    order: list[CandidateResult] = []
    on_front: set[int] = set()
    while left and (not order or len(order) < question.settings.winners):
        stays = pareto(question, left)
        layer = [each for each, is_in in zip(left, stays, strict=True) if is_in]
        if not order:
            on_front = {each.candidate.number for each in layer}
        order += sorted(layer, key=lambda each: _place(question, each))
        left = [each for each, is_in in zip(left, stays, strict=True) if not is_in]
    objective = question.objectives[0]
    left.sort(key=lambda each: (-objective.gain(each.values[0].mean), *_tie(each)))
    return order + left, on_front


def nearest_miss(results: list[CandidateResult]) -> CandidateResult | None:
    """Return the candidate that misses the bounds by least; None: no margin is known."""
    missed = [each for each in results if each.status != FEASIBLE and each.margin == each.margin]
    return max(missed, key=lambda each: (each.margin, -each.candidate.number), default=None)


def _place(question: Question, result: CandidateResult) -> tuple:
    gain = -question.objectives[0].gain(result.values[0].mean)
    gpus, price, number = _tie(result)
    room = -np.nan_to_num(result.margin)        # to the bounds: of equal candidates the one with most
    return (gpus, price, gain, room, number) if len(question.objectives) == 1 else (gain, gpus, price, number)


def _tie(result: CandidateResult) -> tuple[float, float, int]:
    return result.candidate.gpus, cost_per_hour(result.candidate.experiment) or 0.0, result.candidate.number
