"""Instances of a server, each with all its series."""
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from simulator.errors import InputErrors
from simulator.study.server_metrics.names import CONFIG, PREFIX
from simulator.study.server_metrics.series import Series, joined, summed, times_of, upper_bound

PLACES = ("instance", "pod", "engine")      # labels that together name an instance


class Instance(NamedTuple):
    """All series of one instance of a server, at the same ascending times.

    values : by name; histograms as NAME_sum and NAME_count; NaN: not known then.
    buckets : name of a histogram -> upper bounds (b,), the last one infinite, and cumulative counts (t, b).
    """

    name: str
    times_s: np.ndarray
    values: dict[str, np.ndarray]
    buckets: dict[str, tuple[np.ndarray, np.ndarray]]


def instances_of(found: Iterable[Series]) -> list[Instance]:
    """Return the instances, by name.

    Raises
    ------
    InputErrors
        Series of several models; no series that counts; a bucket without a bound.
    """
    known = [each for each in joined(found) if each.name != CONFIG]
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
    times_s = times_of(members)
    values: dict[str, list[Series]] = {}
    buckets: dict[str, dict[float, list[Series]]] = {}
    for each in members:
        if each.name.endswith("_bucket"):
            bounds = buckets.setdefault(each.name.removesuffix("_bucket"), {})
            bounds.setdefault(upper_bound(each), []).append(each)
        else:
            values.setdefault(each.name, []).append(each)
    return Instance(name, times_s, {metric: summed(series, times_s) for metric, series in values.items()}, {
        stem: (np.array(sorted(rows)), np.stack([summed(rows[bound], times_s) for bound in sorted(rows)], axis=1))
        for stem, rows in buckets.items() if np.inf in rows})
