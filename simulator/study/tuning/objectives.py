"""Objectives of a tuning study: numbers of a run, and numbers derived from them."""
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from simulator.config.experiment import Experiment
from simulator.config.words import show
from simulator.errors import nearest
from simulator.results.summary_keys import check_numbers
from simulator.study.capacity.point_search import cost_per_hour
from simulator.study.statistics.intervals import Estimate, of_replications
from simulator.study.sweep.trial import Finished

MS_PER_S = 1000.0
PER_GPU = "_per_gpu"
DIVIDED = ("output_throughput", "total_token_throughput", "request_throughput", "request_goodput")
PER_USER = "tokens_per_s_per_user"
GAP_MEAN, BY_CONCURRENCY = f"{PER_USER}_gap_mean", f"{PER_USER}_by_concurrency"
GOALS = ("max", "min")
# The metric that a derived number is computed from, where it is a metric of requests.
SOURCES = {PER_USER: "tpot_ms.mean", GAP_MEAN: "itl_ms.mean", BY_CONCURRENCY: "output_throughput"}
MADE = (*SOURCES, *(f"{key}{PER_GPU}" for key in DIVIDED), "gpus", "cost_per_hour", "rate")


class Objective(NamedTuple):
    """One objective."""

    key: str
    is_larger_better: bool

    @property
    def metric(self) -> str:
        """The key of summary.json that it is computed from."""
        return SOURCES.get(self.key, self.key.removesuffix(PER_GPU))

    def gain(self, value: float) -> float:
        """Return a number that is the larger the better."""
        return value if self.is_larger_better else -value


def objectives_in(table: Any, place: str) -> tuple[tuple[Objective, ...], list[str]]:
    """Return the valid objectives of a table, and the faults of the others."""
    if not isinstance(table, Mapping) or not table:
        return (), [f'{place}: expected at least one, for instance "output_throughput_per_gpu" = "max"']
    flat = dict(_flat(table))
    faults = [f'{place}."{key}": expected "max" or "min", found {show(goal)}{nearest(str(goal), GOALS)}'
              for key, goal in flat.items() if goal not in GOALS]
    faults += check_numbers(flat, place, MADE)
    return tuple(Objective(key, goal == "max") for key, goal in flat.items() if goal in GOALS), faults


def numbers_of(end: Finished, experiment: Experiment, rate: float | None = None) -> dict[str, float | None]:
    """Return all numbers of a run that may be objectives.

    Parameters
    ----------
    rate : offered to the run, where a search has found it.

    Notes
    -----
    Tokens a second that a user sees has three meanings: 1000 / mean TPOT (aiconfigurator); the mean over all gaps of
    1000 / gap (AISimulate); output throughput over the number of users (vLLM's plot_pareto). Nine gaps of 10 ms and one
    of 100 ms are 52.6 by the first and 91 by the second. GPUs are those paid for, averaged over time.
    """
    summary, gpus = end.summary, end.extra.get("gpus_paid")
    users = experiment.workload.load.concurrency
    made = {f"{key}{PER_GPU}": _ratio(summary.get(key), gpus) for key in DIVIDED}
    made[PER_USER] = _ratio(MS_PER_S, summary.get("tpot_ms.mean"))
    made[GAP_MEAN] = end.extra.get("speed_gap_mean")
    made[BY_CONCURRENCY] = _ratio(summary.get("output_throughput"), users)
    return dict(summary) | made | {"gpus": gpus, "cost_per_hour": cost_per_hour(experiment), "rate": rate}


def estimates_of(objectives: tuple[Objective, ...], numbers: list[dict[str, float | None]], ends: list[Finished],
                 confidence: float) -> tuple[Estimate, ...]:
    """Return value and half-width of each objective, over replications.

    Of one run alone the half-width is the one within the run where there is one, else NaN.
    """
    found = []
    for each in objectives:
        values = [math.nan if numbers_of_run[each.key] is None else numbers_of_run[each.key]
                  for numbers_of_run in numbers]
        estimate = of_replications(values, confidence)
        if len(values) == 1:
            within = ends[0].extra.get("interval", {}).get(each.key)
            estimate = estimate._replace(half_width=math.nan if within is None else within)
        found.append(estimate)
    return tuple(found)


def _ratio(value: float | None, by: float | None) -> float | None:
    return None if value is None or not by else value / by


def _flat(table: Mapping, prefix: str = ""):
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
