"""Series of a server's metrics, by the names of vLLM's newest version, and the instances that they belong to.

Source of names: vLLM 0.33.0, v1/metrics/loggers.py; older ones: vLLM 0.8 to 0.11, the same file.
"""
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from simulator.errors import InputErrors

PREFIX = "vllm:"
OLD_NAMES = {
    "gpu_cache_usage_perc": "kv_cache_usage_perc",
    "gpu_prefix_cache_queries_total": "prefix_cache_queries_total",
    "gpu_prefix_cache_hits_total": "prefix_cache_hits_total",
    "time_per_output_token_seconds": "inter_token_latency_seconds",
}
COUNTERS = (
    "request_success_total", "prompt_tokens_total", "generation_tokens_total", "num_preemptions_total",
    "prefix_cache_queries_total", "prefix_cache_hits_total")
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prefix_cache_hit_rate")
HISTOGRAMS = (
    "time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds",
    "request_queue_time_seconds", "request_prompt_tokens", "request_generation_tokens")
START = "process_start_time_seconds"
ENDINGS = ("_bucket", "_sum", "_count")
PLACES = ("instance", "pod", "engine")      # labels that together name an instance


class Series(NamedTuple):
    """One series: values at ascending times, seconds since 1970.

    source : its place in messages.
    """

    name: str
    labels: Mapping[str, str]
    times_s: np.ndarray
    values: np.ndarray
    source: str


class Instance(NamedTuple):
    """All series of one instance of a server, at the same ascending times.

    values : by name; histograms as NAME_sum and NAME_count; NaN: not known then.
    buckets : name of a histogram -> upper bounds (b,), the last one infinite, and cumulative counts (t, b).
    """

    name: str
    times_s: np.ndarray
    values: dict[str, np.ndarray]
    buckets: dict[str, tuple[np.ndarray, np.ndarray]]


def plain_name(name: str) -> str:
    """Return the newest name of a metric, without `vllm:`."""
    bare = name.removeprefix(PREFIX)
    ending = next((each for each in ENDINGS if bare.endswith(each)), "")
    stem = bare.removesuffix(ending)
    if stem + "_total" in (*COUNTERS, *OLD_NAMES):
        stem += "_total"
    return OLD_NAMES.get(stem, stem) + ending


def is_known(name: str) -> bool:
    """Return whether a reconstruction reads a metric, by its newest name."""
    stem = next((name.removesuffix(each) for each in ENDINGS if name.endswith(each)), None)
    return name in (*COUNTERS, *GAUGES, START) or stem in HISTOGRAMS


def instances_of(found: Iterable[Series]) -> list[Instance]:
    """Return the instances, by name.

    Raises
    ------
    InputErrors
        Series of several models; no series that a reconstruction reads.
    """
    known = [each for each in found if is_known(each.name)]
    if not known:
        raise InputErrors(["--metrics: no series of vLLM found; expected raw selectors, for instance the answer to "
                           f"query_range of {PREFIX}request_success_total"])
    models = sorted({each.labels["model_name"] for each in known if "model_name" in each.labels})
    if len(models) > 1:
        raise InputErrors([f"--metrics: series of {len(models)} models, {', '.join(models)}; expected those of one: "
                           f'select {{model_name="{models[0]}"}}'])
    places: dict[tuple[str, ...], list[Series]] = {}
    for each in known:
        places.setdefault(tuple(each.labels.get(label, "") for label in PLACES), []).append(each)
    return on_a_grid([_instance(" ".join(filter(None, place)) or "server", members)
                      for place, members in sorted(places.items())])


def on_a_grid(instances: list[Instance]) -> list[Instance]:
    """Return instances at the same times, where each was scraped at its own.

    Answers of query_range have the same times; raw samples move by half the distance of scrapes at most.
    """
    if len(instances) < 2 or all(np.array_equal(each.times_s, instances[0].times_s) for each in instances):
        return instances
    steps_s = np.concatenate([np.diff(each.times_s) for each in instances])
    first_s = min(float(each.times_s[0]) for each in instances)
    step_s = float(np.median(steps_s)) if len(steps_s) else 1.0
    places = [np.round((each.times_s - first_s) / step_s) for each in instances]
    if any(np.any(np.diff(place) <= 0) for place in places):        # scraped at changing distances
        return instances
    return [each._replace(times_s=first_s + place * step_s) for each, place in zip(instances, places, strict=True)]


def _instance(name: str, members: list[Series]) -> Instance:
    times_s = np.unique(np.concatenate([each.times_s for each in members]))
    values: dict[str, np.ndarray] = {}
    buckets: dict[str, dict[float, np.ndarray]] = {}
    for each in members:
        row = np.full(len(times_s), np.nan)
        row[np.searchsorted(times_s, each.times_s)] = each.values
        if each.name.endswith("_bucket"):
            bounds = buckets.setdefault(each.name.removesuffix("_bucket"), {})
            bound = float(each.labels.get("le", "inf"))
            bounds[bound] = _added(bounds.get(bound), row)
        else:
            values[each.name] = _added(values.get(each.name), row)
    return Instance(name, times_s, values, {
        stem: (np.array(sorted(rows)), np.stack([rows[bound] for bound in sorted(rows)], axis=1))
        for stem, rows in buckets.items() if np.inf in rows})


def _added(before: np.ndarray | None, row: np.ndarray) -> np.ndarray:
    """Return the sum over labels such as finished_reason; NaN where no label has a value."""
    if before is None:
        return row
    return np.where(np.isnan(before), row, before + np.nan_to_num(row))
