"""Samplers of Optuna, and the values of axes that they choose.

TPE: Bergstra et al., Algorithms for Hyper-Parameter Optimization, NeurIPS 2011. CMA-ES: Hansen, The CMA Evolution
Strategy: A Tutorial, arXiv 1604.00772. NSGA-II: Deb et al., IEEE Transactions on Evolutionary Computation 6, 2002.
"""
from typing import Any

from simulator.errors import MissingExtra
from simulator.study.sweep.axes import Axis
from simulator.study.tuning.candidates import Candidate
from simulator.study.tuning.files import default_of
from simulator.study.tuning.sampling_rules import CMAES, is_number, is_ordered
from simulator.study.tuning.tune_table import Question

INSTALL = "pip install 'simulator[tune]'"
TPE, NSGA2 = "tpe", "nsga2"
DIGITS = 4                      # of a number between the ends of a range


def study_of(question: Question) -> Any:
    """Return a study of Optuna with the sampler that the question asks for.

    Raises
    ------
    MissingExtra
        Optuna is not installed, or cmaes for CMA-ES.
    """
    place = f"{question.study.file}: study"
    try:
        import optuna
    except ImportError:
        raise MissingExtra([f'{place}.search: "optuna" needs Optuna: install it with {INSTALL}']) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        directions=["maximize" if each.is_larger_better else "minimize" for each in question.objectives],
        sampler=_sampler_of(question, optuna.samplers, place))


def _sampler_of(question: Question, samplers: Any, place: str) -> Any:
    given, seed = question.settings, question.study.base.seed % 2**32
    name = given.sampler or (TPE if len(question.objectives) == 1 else NSGA2)
    if name == TPE:
        return samplers.TPESampler(seed=seed, multivariate=len(given.layouts or ()) < 2)
    if name == NSGA2:
        return samplers.NSGAIISampler(seed=seed)
    try:
        import cmaes  # noqa: F401, which the sampler imports later
    except ImportError:
        raise MissingExtra([f'{place}.sampler: "{CMAES}" needs cmaes: install it with {INSTALL}']) from None
    return samplers.CmaEsSampler(seed=seed)


def value_of(axis: Axis, trial: Any) -> Any:
    """Return the value of an axis that a trial of Optuna chooses.

    Numbers between the ends of a range have four digits.
    """
    if not axis.values:
        if axis.is_whole:
            return trial.suggest_int(axis.key, axis.low, axis.high, log=axis.is_log)
        chosen = trial.suggest_float(axis.key, axis.low, axis.high, log=axis.is_log)
        return min(max(float(f"{chosen:.{DIGITS}g}"), float(axis.low)), float(axis.high))
    last = len(axis.values) - 1
    if is_ordered(axis):
        return axis.values[trial.suggest_int(axis.key, 0, last)]
    return axis.values[trial.suggest_categorical(axis.key, tuple(range(last + 1)))]


def own_values(question: Question) -> dict[str, Any]:
    """Return the experiment's own values, as Optuna has them.

    Axes that do not hold theirs are left out.
    """
    own, found = Candidate(-1, "", {}, question.study.base, 0), {}
    for axis in question.study.axes:
        value = default_of(own, axis.key)
        if axis.values:
            if value in axis.values:
                found[axis.key] = axis.values.index(value)
        elif is_number(value) and axis.low <= value <= axis.high and not (axis.is_whole and value != int(value)):
            found[axis.key] = int(value) if axis.is_whole else float(value)
    return found
