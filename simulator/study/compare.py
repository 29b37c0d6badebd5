"""Run the variants of a comparison, and lay their metrics side by side."""
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simulator import api, registry
from simulator.assembly.latency import Readings, latency_model
from simulator.assembly.requests import requests_of
from simulator.assembly.site import Site, sites_of
from simulator.config.experiment import Experiment
from simulator.errors import InputErrors, MissingExtra, collect_faults, faults_of
from simulator.results.directory import check_free
from simulator.results.report import notes
from simulator.results.result import Result
from simulator.study.compare_file import Comparison
from simulator.study.processes import in_processes
from simulator.study.telling.said import Said, backends_of
from simulator.study.telling.screen import table_of
from simulator.workload.base import Workload

SCHEMA = 1
FILE = "comparison.json"        # in the results directory, beside a folder for each variant

# Key of summary.json -> its label in the table.
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
COSTS = {"cost.total": "cost", "cost.cost_per_good_request": "cost of a good request"}    # of runs with prices


class Measured(NamedTuple):
    """The results of one variant.

    metrics : by the keys of `METRICS`, and of `COSTS` with prices; None where there is nothing to measure.
    notes : warnings for the reader, one sentence each.
    wall_s : real seconds that the run took.
    """

    metrics: dict[str, float | None]
    notes: list[str]
    wall_s: float


class KnownOutputs(NamedTuple):
    """The output lengths that the policies of a variant know.

    expected_tokens : int32 (n,), as in the demands of a Workload. notes : of the Workload.
    """

    expected_tokens: np.ndarray
    notes: tuple[str, ...]


class Plan(NamedTuple):
    """The variants to run.

    workload : the requests of all variants, not yet served.
    known_outputs : by name of the variant.
    experiments : by name of the variant, those that can run.
    unavailable : by name of the variant, the extra that is not installed.
    notes : by name of the variant, warnings of its latency models when they were made.
    readings : files that the models have read: once, where variants share them.
    """

    workload: Workload
    known_outputs: dict[str, KnownOutputs]
    experiments: dict[str, Experiment]
    unavailable: dict[str, str]
    notes: dict[str, list[str]]
    readings: Readings

    def requests_of(self, name: str) -> Workload:
        """Return the requests of a variant, which its run may write to."""
        workload = self.workload.untouched()
        workload.demands["expected_tokens"], workload.notes = self.known_outputs[name]
        return workload


class Order(NamedTuple):
    """Options of the runs; parameters as those of `measure` and `simulator.run`."""

    plan: Plan
    out: str | os.PathLike | None
    overwrite: bool
    quiet: bool
    threads: int | None = None


def prepare(comparison: Comparison, out: str | os.PathLike | None = None, overwrite: bool = False) -> Plan:
    """Read the requests; make sure that all variants can run and be written.

    A variant that only lacks an extra of the package is set aside.

    Raises
    ------
    InputErrors
        All faults of the other variants; or all variants lack an extra.
    """
    names, unavailable, notes_of, readings = list(comparison.experiments), {}, {}, Readings()
    checks = [partial(_check, comparison, name, unavailable, notes_of, readings) for name in names]
    if out is not None:
        checks += [partial(check_free, Path(out, name), overwrite) for name in names]
        checks.append(partial(_check_free_file, Path(out, FILE), overwrite))
    (workload, known_outputs), *_ = collect_faults(partial(_requests, comparison), *checks)
    if len(unavailable) == len(names):
        raise InputErrors([f"{comparison.place(name)}: {reason}" for name, reason in unavailable.items()])
    available = {name: each for name, each in comparison.experiments.items() if name not in unavailable}
    return Plan(workload, known_outputs, available, unavailable, notes_of, readings)


def measure(plan: Plan, out: str | os.PathLike | None = None, overwrite: bool = False, quiet: bool = True,
            num_processes: int = 1) -> Iterator[tuple[str, Measured]]:
    """Run each variant; yield its name and its results as soon as it is done.

    Parameters
    ----------
    out : directory in which each variant gets one for its results; None: nothing is written.
    overwrite, quiet : as in `simulator.run`.
    num_processes : variants that run at once, each in a process of its own, which holds the requests too; 1: in this
        one, in the order of the file. The results do not depend on it.

    Raises
    ------
    Exception
        The exception of a variant; the message or a note names it.
    """
    order = Order(plan, out, overwrite, quiet)
    num_processes = min(num_processes, len(plan.experiments))
    if num_processes > 1:
        yield from in_processes(measure_one, order._replace(quiet=True, threads=1), plan.experiments, num_processes)
        return
    for name in plan.experiments:
        yield name, measure_one(order, name)


def measure_one(order: Order, name: str) -> Measured:
    """Run one variant.

    Raises
    ------
    Exception
        As `measure`.
    """
    began_s, plan = time.perf_counter(), order.plan
    result = run_one(order, name)
    metrics = metrics_of(result.summary)
    own_notes = notes(result.summary)
    own_notes += [note for note in plan.notes.get(name, ()) if not any(note in other for other in own_notes)]
    return Measured(metrics, own_notes, time.perf_counter() - began_s)


def run_one(order: Order, name: str) -> Result:
    """Return the result of one variant, which knows its requests and iterations.

    Raises
    ------
    Exception
        As `measure`.
    """
    plan = order.plan
    workload = None if plan.workload.is_open_ended else plan.requests_of(name)      # each variant sends its own number
    with _named(name):
        return api.run_ordered(api.Order(
            plan.experiments[name], None if order.out is None else Path(order.out, name), order.overwrite, order.quiet,
            workload, order.threads, plan.readings))


def metrics_of(summary: dict) -> dict[str, float | None]:
    """Return the metrics of a summary by the keys of `METRICS` and `COSTS`."""
    keys = [*METRICS, *(COSTS if "cost" in summary else ())]
    return {key: reduce(getitem, key.split("."), summary) for key in keys}


def table(results: dict[str, Measured], unavailable: dict[str, str]) -> str:
    """Return the metrics as text, a column per variant; and unavailable variants."""
    rows = [["", *results]]
    rows += [[label, *(_text(measured.metrics.get(key)) for measured in results.values())]
             for key, label in (METRICS | COSTS).items()
             if key in METRICS or any(key in measured.metrics for measured in results.values())]
    return "\n".join([table_of(rows, left=(0,)),
                      *(f"{name} is unavailable: {reason}" for name, reason in unavailable.items())])


def said_of(plan: Plan, results: dict[str, Measured]) -> Said:
    """Return the remarks of the runs of the variants."""
    said = Said()
    for name, measured in results.items():
        said.add(name, measured.notes, backends_of([plan.experiments[name]]))
    return said


def write(path: str | os.PathLike, results: dict[str, Measured], unavailable: dict[str, str], said: Said) -> None:
    """Write the metrics as JSON.

    `variants` has name -> key of summary.json -> number or null, `unavailable` name -> reason; then the remarks of
    the runs, in which `runs` counts variants.
    """
    content = {"schema": SCHEMA, "variants": {name: measured.metrics for name, measured in results.items()},
               "unavailable": unavailable} | said.content(names=True)
    staged = Path(f"{path}.partial")
    staged.write_text(json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(staged, path)


def _requests(comparison: Comparison) -> tuple[Workload, dict[str, KnownOutputs]]:
    """Read the requests, once for each way of predicting output lengths: the seed makes them equal."""
    workload, known, known_outputs = None, {}, {}
    sites = [site for each in comparison.experiments.values() for site in sites_of(each)]
    for name, experiment in comparison.experiments.items():
        knowledge = experiment.workload.output_knowledge
        if knowledge not in known:
            with faults_of(comparison.place(name)):
                read = requests_of(experiment, sites=sites)
            known[knowledge] = KnownOutputs(read.demands["expected_tokens"].copy(), read.notes)
            workload = read if workload is None else workload
        known_outputs[name] = known[knowledge]
    return workload, known_outputs


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Name the variant in exceptions raised inside the block."""
    try:
        yield
    except InputErrors as errors:
        raise InputErrors([fault if fault.startswith(f"{name}: ") else f"variant {name}: {fault}"
                           for fault in errors.faults]) from errors
    except (Exception, SystemExit) as error:
        if blamed := registry.blame(error):             # an exception of a user's class
            raise InputErrors([f"variant {name}: {blamed}"]) from error
        error.add_note(f"variant {name}")
        raise


def _check(comparison: Comparison, name: str, unavailable: dict[str, str], notes_of: dict[str, list[str]],
           readings: Readings) -> None:
    experiment = comparison.experiments[name]
    with faults_of(comparison.place(name)):
        try:
            for pool in experiment.all_pools():
                model = latency_model(Site(pool).check(), readings)
                notes_of.setdefault(name, []).extend(model.warnings())
        except MissingExtra as missing:
            unavailable[name] = str(missing)


def _check_free_file(path: Path, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise InputErrors([f"{path}: exists; --overwrite replaces it, --out chooses another directory"])


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.2g}" if 0 < abs(value) < 0.01 else f"{value:,.2f}"
