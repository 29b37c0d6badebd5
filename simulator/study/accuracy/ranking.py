"""Ranking of deployments and loads by predictions: whether the better run is predicted to be the better one.

A planner asks which layout and load serve the most within a limit. `Ranking` answers by the measured runs: Kendall's
tau-b of predicted and measured values; and for limits on TPOT between the measured ones, the run that the predictions
choose: its throughput beside the best one's (regret), and whether it breaks the limit.
"""
import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from simulator.study.accuracy.case import Case
from simulator.study.accuracy.data_set import Opened
from simulator.study.accuracy.predict import OK, Prediction

PER_CENT = 100.0
LEAST_RUNS = 3          # that Kendall's tau is defined for
RANKED = ("ttft", "tpot")


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """How well one predictor ranks the runs of one model on one accelerator.

    kendall : metric -> tau-b over the runs, -1 .. 1; metrics with fewer than three runs, or without order, are left
        out.
    questions : limits on TPOT asked, one between each two neighbouring measured values of runs with equal lengths.
    unanswered_pct : questions for which no run is predicted to keep the limit, of all.
    broken_pct : share of answered questions in which the chosen run breaks the limit; None: none answered.
    regret_pct : mean loss of throughput per GPU of chosen runs that keep the limit, beside the best that does.
    """

    data_set: str
    backend: str
    published: bool
    model: str
    gpu: str
    runs: int
    kendall: dict[str, float]
    questions: int
    unanswered_pct: float | None = None
    broken_pct: float | None = None
    regret_pct: float | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The key of a ranking."""
        return self.data_set, self.backend, self.model, self.gpu


class Run(NamedTuple):
    """One measured run of a deployment.

    lengths : nominal tokens of prompts and outputs, as the experiment has them; runs with equal ones are compared.
    load : clients per GPU; None: not a closed loop.
    measured, predicted : metric -> milliseconds.
    """

    lengths: str
    load: float | None
    measured: Mapping[str, float]
    predicted: Mapping[str, float]


def rankings_of(data_set: Opened, backend: str, cases: Iterable[Case],
                predictions: Iterable[Prediction]) -> list[Ranking]:
    """Return the rankings of a backend, by model and accelerator; two runs at least."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for case, each in zip(cases, predictions, strict=True):
        if each.status == OK:
            groups.setdefault((each.model, each.hardware), []).append(_run(data_set, case, each.values))
    return _rankings(data_set, backend, groups, is_published=False)


def published_rankings(data_set: Opened, cases: Iterable[Case]) -> list[Ranking]:
    """Return the rankings of published predictions of others."""
    found = []
    for peer in data_set.says.peers:
        groups: dict[tuple[str, str], list[Run]] = {}
        for case in cases:
            said = {metric: value["mean"] for metric, value in case.published.get(peer.name, {}).items()
                    if "mean" in value}
            names = [str(_table(data_set, case, kind).get("name", "")) for kind in ("model", "hardware")]
            if said:
                groups.setdefault(tuple(names), []).append(_run(data_set, case, said))
        found += _rankings(data_set, f"{peer.name} (published)", groups, is_published=True)
    return found


def kendall_tau(predicted: np.ndarray, measured: np.ndarray) -> float | None:
    """Return Kendall's tau-b of two float64 (n,) arrays.

    None: fewer than three values, or one side is constant.
    """
    if len(predicted) < LEAST_RUNS:
        return None
    ours, theirs = (np.sign(values[:, None] - values[None, :]) for values in (predicted, measured))
    spread = math.sqrt(float((ours ** 2).sum()) * float((theirs ** 2).sum()))
    return float((ours * theirs).sum()) / spread if spread else None


def _rankings(data_set: Opened, backend: str, groups: Mapping, is_published: bool) -> list[Ranking]:
    return [Ranking(data_set=data_set.says.name, backend=backend, published=is_published, model=model, gpu=gpu,
                    runs=len(runs), kendall=_kendall(data_set, model, runs), **_answers(data_set, model, runs))
            for (model, gpu), runs in groups.items() if len(runs) > 1]


def _kendall(data_set: Opened, model: str, runs: list[Run]) -> dict[str, float]:
    found = {}
    for metric in RANKED:
        pairs = [(run.predicted[metric], run.measured[metric]) for run in runs
                 if metric in run.predicted and metric in run.measured]
        if pairs and data_set.why_unusable(metric, model) is None:
            tau = kendall_tau(*np.array(pairs).T)
            if tau is not None:
                found[metric] = tau
    return found


def _answers(data_set: Opened, model: str, runs: list[Run]) -> dict[str, float | int | None]:
    """Return the answers to all questions on limits of TPOT."""
    regrets, asked, answered, broken = [], 0, 0, 0
    if data_set.why_unusable("tpot", model) is None:
        for lengths in dict.fromkeys(run.lengths for run in runs):
            alike = [(run.load, run.predicted["tpot"], run.measured["tpot"]) for run in runs
                     if run.lengths == lengths and run.load and "tpot" in run.predicted and "tpot" in run.measured]
            for limit_ms in _between(measured for _, _, measured in alike):
                asked += 1
                chosen = max((run for run in alike if run[1] <= limit_ms), key=lambda run: run[0] / run[1],
                             default=None)
                if chosen is None:
                    continue
                answered += 1
                if chosen[2] > limit_ms:
                    broken += 1
                    continue
                best = max(load / measured for load, _, measured in alike if measured <= limit_ms)
                regrets.append(1.0 - chosen[0] / chosen[2] / best)
    return {"questions": asked, "unanswered_pct": PER_CENT * (asked - answered) / asked if asked else None,
            "broken_pct": PER_CENT * broken / answered if answered else None,
            "regret_pct": PER_CENT * float(np.mean(regrets)) if regrets else None}


def _between(values: Iterable[float]) -> list[float]:
    """Return the geometric means of neighbours among the distinct values."""
    ordered = sorted(set(values))
    return [math.sqrt(low * high) for low, high in pairwise(ordered)]


def _run(data_set: Opened, case: Case, predicted: Mapping[str, float | np.ndarray]) -> Run:
    """Return a run; metrics of single requests are left out."""
    measured, predicted = ({metric: float(value) for metric, value in side.items()
                            if metric in RANKED and not isinstance(value, np.ndarray)}
                           for side in (case.measured, predicted))
    workload, topology = (_table(data_set, case, kind) for kind in ("workload", "topology"))
    clients = workload.get("load", {}).get("concurrency") if "pools" not in case.tables else None
    gpus = math.prod(topology.get(key, 1) for key in ("tensor_parallel", "pipeline_parallel", "data_parallel"))
    return Run(repr([workload.get(key) for key in ("prompt_tokens", "output_tokens")]),
               clients / gpus if clients else None, measured, predicted)


def _table(data_set: Opened, case: Case, name: str) -> dict:
    return data_set.says.experiment.get(name, {}) | dict(case.tables.get(name, {}))
