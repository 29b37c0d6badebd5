"""Simulate one measured run."""
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from simulator import api
from simulator.assembly.latency import Readings, latency_model
from simulator.assembly.requests import requests_of
from simulator.assembly.site import Site
from simulator.config.experiment import Experiment
from simulator.config.layers import Layers, Source, add_overrides
from simulator.config.load import resolve
from simulator.domain import facts, records
from simulator.errors import InputErrors, MissingExtra
from simulator.study.accuracy.case import Case
from simulator.study.accuracy.data_set import Opened

OK, REFUSED, MISSING_EXTRA, NO_FACTS = "ok", "refused", "missing extra", "no facts"
# Metric -> keys in the summary of a run.
MEANS = {"ttft": ("ttft_ms", "mean"), "tpot": ("tpot_ms", "mean"), "e2e": ("e2el_ms", "mean"),
         "makespan": ("duration_s",), "throughput": ("output_throughput",)}
OUTSIDE = ("extrapolated", "roofline")          # counts of backends that read tables; all others are inside
INSIDE = ("exact", "interpolated")
NS_PER_MS = 1e6


class Ways(NamedTuple):
    """Settings for the simulation of runs.

    backend : a name in the registry, or "module:Class".
    readings : cache of the tables of earlier runs.
    overrides : as in `simulator.run`; they win over all others.
    """

    backend: str
    readings: Readings
    overrides: Mapping[str, Any] | Iterable[str] | None = None


class Prediction(NamedTuple):
    """The prediction of a run.

    model, hardware : their names.
    status, reason : why there is no prediction, if not OK.
    values : metric -> as in the case's `measured`.
    asked, outside : predictions of tables, and the part beyond or between measured points; 0: the backend has no
    tables.
    not_completed : simulated requests that did not end.
    intervals : metric -> low, high, of runs with [latency] uncertainty.
    """

    model: str
    hardware: str
    status: str
    reason: str = ""
    values: Mapping[str, Any] = {}
    asked: int = 0
    outside: int = 0
    not_completed: int = 0
    wall_s: float = 0.0
    intervals: Mapping[str, tuple[float, float]] = {}


def predict(data_set: Opened, case: Case, ways: Ways) -> Prediction:
    """Simulate a run; the status says why a run cannot be simulated."""
    began_s = time.perf_counter()
    layers = _layers(data_set, case, ways)
    names = [str(layers.data.get(kind, {}).get("name", "")) for kind in ("model", "hardware")]
    try:
        if lacking := _without_facts(*names):
            return Prediction(*names, NO_FACTS, lacking)
        experiment = resolve(layers)
        for pool in experiment.all_pools():     # missing extras are reported here
            latency_model(Site(pool).check(), ways.readings)
        result = api.run_ordered(api.Order(experiment, None, False, True, _workload(data_set, case, experiment),
                                           threads=1, readings=ways.readings))
    except MissingExtra as missing:
        return Prediction(*names, MISSING_EXTRA, "; ".join(missing.faults))
    except InputErrors as errors:
        return Prediction(*names, REFUSED, "; ".join(errors.faults))
    counts = result.summary["requests"]
    asked, outside = _outside(result.summary["latency"])
    return Prediction(*names, OK, "", _values(case, result), asked, outside, counts["injected"] - counts["completed"],
                      time.perf_counter() - began_s, _intervals(case, result.summary))


def _layers(data_set: Opened, case: Case, ways: Ways) -> Layers:
    says = data_set.says
    source = Source(f"{data_set.place}: {case.label}", data_set.root)
    layers = Layers(source)
    latency = {"backend": ways.backend, **says.backends.get(ways.backend, {}), **case.backends.get(ways.backend, {})}
    tables = dict(case.tables)
    if by_pool := case.pool_backends.get(ways.backend):
        tables["pools"] = [pool | {"latency": by_pool[pool["name"]]} if pool["name"] in by_pool else pool
                           for pool in tables["pools"]]
    for each in (says.experiment, tables, {"name": says.name, "latency": latency}):
        layers.add(each, source)
    add_overrides(layers, ways.overrides, "--set")
    return layers


def _without_facts(model: str, hardware: str) -> str:
    """Return the names of model and hardware without a fact file; empty: both are known, or are files of the user."""
    named = ("model", model), ("hardware", hardware)
    lacking = [f'no {kind} "{name}" in {facts.FOLDERS[kind]}/' for kind, name in named
               if name and not ("/" in name or name.endswith(".toml") or name in facts.names(kind))]
    return "; ".join(lacking)


def _workload(data_set: Opened, case: Case, experiment: Experiment):
    """Return the trace with the measured arrival times of its requests; None: the experiment has its own."""
    if case.arrivals_ns is None:
        return None
    workload = requests_of(experiment)
    lengths = np.stack([workload.requests["prompt_tokens"], workload.outcomes["output_tokens"]], axis=1)
    if lengths.shape != case.lengths.shape or (lengths != case.lengths).any():
        raise InputErrors([f"{data_set.place}: the trace has other requests than the log: their lengths differ, or "
                           f"their number ({len(lengths)}, {len(case.lengths)})"])
    workload.requests["arrival_ns"] = case.arrivals_ns
    return workload


def _values(case: Case, result) -> dict[str, Any]:
    """Return the measured metrics: of each request, or of the run."""
    requests = result.requests
    by_request = times_of_requests(requests[np.argsort(requests["arrival_ns"], kind="stable")]) \
        if case.arrivals_ns is not None else {}
    values = {}
    for metric, measured in case.measured.items():
        if isinstance(measured, np.ndarray):
            values[metric] = by_request[metric]
        else:
            value = result.summary
            for key in MEANS[metric]:
                value = value[key]
            if value is not None:
                values[metric] = value
    return values


def _intervals(case: Case, summary: dict) -> dict[str, tuple[float, float]]:
    """Return the intervals of metrics of the run; single requests have none."""
    found = {}
    known = summary.get("uncertainty", {}).get("metrics", {})
    for metric, measured in case.measured.items():
        interval = known.get(".".join(MEANS[metric]))
        if not isinstance(measured, np.ndarray) and interval and interval["low"] is not None:
            found[metric] = interval["low"], interval["high"]
    return found


def times_of_requests(requests: np.ndarray) -> dict[str, np.ndarray]:
    """Return the times of simulated requests, ms.

    NaN for requests that did not complete, or lack the time.
    """
    arrived, first, last = (requests[name].astype(float) / NS_PER_MS
                            for name in ("arrival_ns", "first_token_ns", "completed_ns"))
    gaps = requests["output_tokens"] - 1.0
    gaps[gaps == 0.0] = np.nan
    has_ended = requests["status"] == records.COMPLETED
    return {"ttft": np.where(has_ended, first - arrived, np.nan), "e2e": np.where(has_ended, last - arrived, np.nan),
            "tpot": np.where(has_ended, (last - first) / gaps, np.nan)}


def _outside(latency: dict) -> tuple[int, int]:
    """Return the number of table look-ups, and how many of the look-ups had no value of their own."""
    inside, outside = (sum(latency.get(name, 0) for name in names) for names in (INSIDE, OUTSIDE))
    return inside + outside, outside
