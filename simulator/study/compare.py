"""Run the variants of a comparison one after the other, and lay their metrics side by side."""
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import NamedTuple

from simulator import api, assemble
from simulator.config.experiment import Experiment
from simulator.errors import InputErrors, MissingExtra, collect_faults, faults_of
from simulator.results.directory import check_free
from simulator.results.report import notes
from simulator.study.compare_file import Comparison
from simulator.workload.base import Workload
from simulator.workload.load import load as load_workload

SCHEMA = 1
FILE = "comparison.json"        # in the results directory, beside a folder for each variant

# Key of summary.json -> what the table calls it.
METRICS = {
    "requests.completed": "completed requests",
    "duration_s": "duration, s",
    "request_throughput": "requests/s",
    "request_goodput": "goodput, requests/s",
    "output_throughput": "output tokens/s",
    "iterations": "iterations",
    "prefix_cache.hit_rate": "prefix hit rate",
    **{f"{key}.{statistic}": f"{label} {statistic}, ms"
       for key, label in (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"), ("itl_ms", "ITL"), ("e2el_ms", "E2EL"))
       for statistic in ("mean", "p50", "p99")},
}


class Measured(NamedTuple):
    """What came out of one variant.

    metrics : by the keys of `METRICS`; None where there is nothing to measure.
    notes : what a reader should know, one sentence each.
    wall_s : real seconds that the run took.
    """

    metrics: dict[str, float | None]
    notes: list[str]
    wall_s: float


class Plan(NamedTuple):
    """What can be run.

    workload : the requests that all variants serve, as nobody has served them yet.
    experiments : by name of the variant, those that can run.
    unavailable : by name of the variant, why it cannot: what is not installed.
    """

    workload: Workload
    experiments: dict[str, Experiment]
    unavailable: dict[str, str]


def prepare(comparison: Comparison, out: str | os.PathLike | None = None, overwrite: bool = False) -> Plan:
    """Read the requests; make sure that all variants can run and be written.

    A variant that only lacks an extra of the package is set aside.

    Raises
    ------
    InputErrors
        What is wrong with any of the others; that all of them lack an extra.
    """
    names, unavailable = list(comparison.experiments), {}
    checks = [partial(_check, comparison, name, unavailable) for name in names]
    if out is not None:
        checks += [partial(check_free, Path(out, name), overwrite) for name in names]
        checks.append(partial(_check_free_file, Path(out, FILE), overwrite))
    workload, *_ = collect_faults(partial(_requests, comparison), *checks)
    if len(unavailable) == len(names):
        raise InputErrors([f"{comparison.place(name)}: {reason}" for name, reason in unavailable.items()])
    available = {name: each for name, each in comparison.experiments.items() if name not in unavailable}
    return Plan(workload, available, unavailable)


def measure(plan: Plan, out: str | os.PathLike | None = None, overwrite: bool = False,
            quiet: bool = True) -> Iterator[tuple[str, Measured]]:
    """Run each variant; yield its name and what came out as soon as it is done.

    Parameters
    ----------
    out : directory in which each variant gets one for its results; None: nothing is written.
    overwrite, quiet : as in `simulator.run`.
    """
    for name, experiment in plan.experiments.items():
        began_s = time.perf_counter()
        workload = replace(plan.workload, requests=plan.workload.requests.copy())
        result = api.run(experiment, out=None if out is None else Path(out, name), overwrite=overwrite, quiet=quiet,
                         workload=workload)
        metrics = {key: reduce(getitem, key.split("."), result.summary) for key in METRICS}
        yield name, Measured(metrics, notes(result.summary), time.perf_counter() - began_s)


def table(results: dict[str, Measured], unavailable: dict[str, str]) -> str:
    """Return the metrics as text, a column for each variant, and who is missing."""
    rows = [["", *results]]
    rows += [[label, *(_text(measured.metrics[key]) for measured in results.values())]
             for key, label in METRICS.items()]
    first, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = ["  ".join([f"{label:{first}}", *map(str.rjust, cells, widths)]) for label, *cells in rows]
    return "\n".join([*lines, *(f"{name} is unavailable: {reason}" for name, reason in unavailable.items())])


def write(path: str | os.PathLike, results: dict[str, Measured], unavailable: dict[str, str]) -> None:
    """Write the metrics as JSON.

    Under `variants` stand name -> key of summary.json -> number or null, under `unavailable` name -> reason.
    """
    content = {"schema": SCHEMA, "variants": {name: measured.metrics for name, measured in results.items()},
               "unavailable": unavailable}
    staged = Path(f"{path}.partial")
    staged.write_text(json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(staged, path)


def _requests(comparison: Comparison) -> Workload:
    name, experiment = next(iter(comparison.experiments.items()))       # it is the same for all
    with faults_of(comparison.place(name)):
        return load_workload(experiment.workload, experiment.seed)


def _check(comparison: Comparison, name: str, unavailable: dict[str, str]) -> None:
    experiment = comparison.experiments[name]
    with faults_of(comparison.place(name)):
        try:
            for pool in experiment.all_pools():
                assemble.latency_model(pool, assemble.survey(pool))
        except MissingExtra as missing:
            unavailable[name] = str(missing)


def _check_free_file(path: Path, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise InputErrors([f"{path}: exists; --overwrite replaces it, --out chooses another directory"])


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
