"""Weights of the router `weighted`, searched by Optuna: its trees (TPE), or CMA-ES."""
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from simulator.errors import InputErrors, MissingExtra
from simulator.gym.comparing import compare
from simulator.gym.linear import linear_router
from simulator.gym.rewards import Rewards


class Tuned(NamedTuple):
    """The best weights of a search.

    weights : by name of the scorer. reward : mean over the cases. trials : (weights, reward) of all trials, in order.
    """

    weights: dict[str, float]
    reward: float
    trials: list[tuple[dict[str, float], float]]


class Search(NamedTuple):
    """Settings of a search for weights.

    sampler : "tpe": Optuna's TPESampler, all weights together; "cmaes": its CmaEsSampler, with the package cmaes.
    trials : at most. patience : the search ends after so many trials in a row without a better one.
    seed : of the sampler. keys : further keys of scorers, by name.
    """

    sampler: Literal["tpe", "cmaes"] = "tpe"
    trials: int = 50
    patience: int = 20
    seed: int = 0
    keys: Mapping[str, Mapping[str, Any]] | None = None


def tune_weights(experiment: str | os.PathLike, scorers: Sequence[str], cases: Iterable[int | Mapping[str, Any]], *,
                 search: Search | None = None, rewards: Rewards | None = None,
                 overrides: Mapping[str, Any] | None = None) -> Tuned:
    """Search for weights from 0 to 1 with the largest mean reward.

    The first trial has equal weights. Runs are compiled throughout; equal arguments give equal trials.

    Parameters
    ----------
    scorers : names, at least one.
    cases, rewards, overrides : as in `compare`; the cases are those of training.

    Raises
    ------
    MissingExtra
        Optuna, or cmaes for its sampler, is not installed.
    InputErrors
        The experiment cannot be run with these scorers; no case or scorer is given.
    """
    search, cases = search or Search(), tuple(cases)
    if not scorers:
        raise InputErrors(["tune_weights: expected at least one scorer"])
    study, trials, best = _study(search, scorers), [], None
    while len(trials) < search.trials and (best is None or len(trials) - best <= search.patience):
        trial = study.ask()
        weights = {name: trial.suggest_float(name, 0.0, 1.0) for name in scorers}
        if not any(weights.values()):
            study.tell(trial, state=_optuna().trial.TrialState.FAIL)
            continue
        policy = {"weights": linear_router(weights, search.keys)}
        scores = compare(experiment, policy, cases, rewards=rewards, overrides=overrides).scores["weights"]
        reward = sum(each.reward for each in scores) / len(scores)
        study.tell(trial, reward)
        trials.append((weights, reward))
        if best is None or reward > trials[best][1]:
            best = len(trials) - 1
    return Tuned(*trials[best], trials)


def _study(search: Search, scorers: Sequence[str]):
    optuna = _optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if search.sampler == "cmaes":
        try:
            import cmaes  # noqa: F401, which the sampler imports later
        except ImportError:
            raise MissingExtra([
                "sampler \"cmaes\" needs cmaes: install it with pip install 'simulator[tune]'"]) from None
        sampler = optuna.samplers.CmaEsSampler(seed=search.seed)
    else:
        sampler = optuna.samplers.TPESampler(seed=search.seed, multivariate=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.enqueue_trial(dict.fromkeys(scorers, 1.0))
    return study


def _optuna():
    try:
        import optuna
    except ImportError:
        raise MissingExtra(["tune_weights needs Optuna: install it with pip install 'simulator[tune]'"]) from None
    return optuna
