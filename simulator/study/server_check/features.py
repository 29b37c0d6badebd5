"""Numbers by which series are compared, each with its scale."""
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from simulator.study.server_check.series import ServerSeries


class Feature(NamedTuple):
    """One number.

    name : key in compare.json. title, unit : on the screen. small : added before the logarithm, so that 0 has one;
    None: a share, compared as it is. error : of a right model, one standard deviation on that scale. of : the number
    of a series; NaN: it does not show it. is_exact : every run has the same number.
    """

    name: str
    title: str
    unit: str
    small: float | None
    error: float
    of: Callable[[ServerSeries], float]
    is_exact: bool = False

    def scaled(self, value: float) -> float:
        """Return a number on the scale of comparison."""
        return value if self.small is None else float(np.log(value + self.small)) if value + self.small > 0 else np.nan

    def back(self, scaled: float) -> float:
        """Return a number of the scale of comparison in its unit."""
        return max(float(scaled) if self.small is None else float(np.exp(scaled)) - self.small, 0.0)


def _fact(name: str) -> Callable[[ServerSeries], float]:
    def of(series: ServerSeries) -> float:
        value = getattr(series.facts, name)
        return np.nan if value is None else float(value)
    return of


def _mean(name: str) -> Callable[[ServerSeries], float]:
    def of(series: ServerSeries) -> float:
        values = series.column(name)
        return float(np.nanmean(values)) if not np.isnan(values).all() else np.nan
    return of


def _ratio(over: str, under: str, scale: float = 1.0) -> Callable[[ServerSeries], float]:
    return lambda series: series.ratio(over, under) * scale


def _highest(series: ServerSeries) -> float:
    values = series.column("running")
    return float(np.nanmax(values)) if not np.isnan(values).all() else np.nan


def _last_waiting(series: ServerSeries) -> float:
    values = series.column("waiting")
    values = values[~np.isnan(values)]
    return float(values[-max(len(values) // 4, 1):].mean()) if len(values) else np.nan


def _hit_share(series: ServerSeries) -> float:
    share = series.ratio("hits", "queries")
    return _mean("hit_share")(series) if np.isnan(share) else share


def _arrivals(series: ServerSeries) -> float:
    inside = series.column("running") + np.nan_to_num(series.column("waiting"))
    known = inside[~np.isnan(inside)]
    return (series.rise("ended") + known[-1] - known[0]) / series.span_s if len(known) > 1 else np.nan


def _per_second(name: str) -> Callable[[ServerSeries], float]:
    return lambda series: series.rise(name) / series.span_s


def _step_ms(series: ServerSeries) -> float:
    """Return the time a step and an engine, idle times included."""
    steps = series.rise("steps")
    return series.span_s * 1e3 * (series.facts.engines or 1) / steps if steps > 0 else np.nan


FACTS = (
    Feature("kv_tokens", "KV cache of an engine", "tokens", 0.0, 0.015, _fact("kv_tokens")),
    Feature("engines", "engines", "", 0.0, 0.02, _fact("engines"), is_exact=True),
    Feature("longest_bound", "lengths counted up to", "tokens", 0.0, 0.02, _fact("longest_bound"), is_exact=True),
    Feature("prefix_caching", "prefix caching, 1: on", "", None, 0.05, _fact("prefix_caching"), is_exact=True))
ARRIVALS = Feature("arrivals_per_s", "arrivals", "1/s", 0.01, 0.03, _arrivals)
SERVED = (
    Feature("prompt_tokens", "prompt, mean", "tokens", 0.0, 0.03, _ratio("prompt_lengths", "prompts")),
    Feature("answer_tokens", "answer, mean", "tokens", 0.0, 0.03, _ratio("answer_lengths", "answers")),
    Feature("running", "running", "requests", 0.5, 0.05, _mean("running")),
    Feature("most_running", "running, most", "requests", 0.5, 0.05, _highest),
    Feature("waiting", "waiting", "requests", 0.5, 0.10, _mean("waiting")),
    Feature("last_waiting", "waiting, last quarter", "requests", 0.5, 0.10, _last_waiting),
    Feature("kv_usage", "KV usage", "", 0.005, 0.05, _mean("kv_usage")),
    Feature("hit_share", "prefix hit rate", "", None, 0.02, _hit_share),
    Feature("step_ms", "time a step", "ms", 0.0, 0.04, _step_ms),
    Feature("step_tokens", "tokens a step", "tokens", 0.0, 0.05, _ratio("step_tokens", "steps")),
    Feature("ttft_ms", "TTFT, mean", "ms", 1.0, 0.08, _ratio("ttft_s", "first_tokens", 1e3)),
    Feature("itl_ms", "TPOT, mean", "ms", 0.0, 0.04, _ratio("gap_s", "gaps", 1e3)),
    Feature("queue_ms", "queue, mean", "ms", 5.0, 0.10, _ratio("queue_s", "queued", 1e3)),
    Feature("output_tokens_per_s", "output", "tokens/s", 1.0, 0.05, _per_second("output_tokens")),
    Feature("preemptions_per_s", "preemptions", "1/s", 0.05, 0.20, _per_second("preemptions")))
FEATURES = (*FACTS, ARRIVALS, *SERVED)


def numbers_of(series: ServerSeries) -> np.ndarray:
    """Return the features of a series on their scales, float (len(FEATURES),)."""
    return np.array([feature.scaled(feature.of(series)) for feature in FEATURES])


def predicted_numbers(series: ServerSeries, planned_per_s: float | None) -> np.ndarray:
    """Return the features of a run, its arrivals being the planned ones.

    planned_per_s : None: arrivals depend on answers, and are those of the run.
    """
    found = numbers_of(series)
    if planned_per_s is not None:
        found[FEATURES.index(ARRIVALS)] = ARRIVALS.scaled(planned_per_s)
    return found
