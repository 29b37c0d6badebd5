"""Run the variants of a comparison one after the other, and lay their metrics side by side."""
import json
import os
import time
from collections.abc import Iterator
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import NamedTuple

from simulator import api, assemble
from simulator.errors import InputErrors, collect_faults, faults_of
from simulator.results.directory import check_free
from simulator.results.report import notes
from simulator.study.compare_file import Comparison

SCHEMA = 1
FILE = "comparison.json"        # in the results directory, beside a folder for each variant

# Key of summary.json -> what the table calls it.
METRICS = {
    "requests.completed": "completed requests",
    "duration_s": "duration, s",
    "request_throughput": "requests/s",
    "output_throughput": "output tokens/s",
    "iterations": "iterations",
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


def prepare(comparison: Comparison, out: str | os.PathLike | None = None, overwrite: bool = False) -> None:
    """Make sure that every variant can run and its results can be written.

    Raises
    ------
    InputErrors
        What is wrong with any of them.
    """
    names = list(comparison.experiments)
    checks = [partial(_check, comparison, name, name == names[0]) for name in names]
    if out is not None:
        checks += [partial(check_free, Path(out, name), overwrite) for name in names]
        checks.append(partial(_check_free_file, Path(out, FILE), overwrite))
    collect_faults(*checks)


def measure(comparison: Comparison, out: str | os.PathLike | None = None, overwrite: bool = False,
            quiet: bool = True) -> Iterator[tuple[str, Measured]]:
    """Run each variant; yield its name and what came out as soon as it is done.

    Parameters
    ----------
    out : directory in which each variant gets one for its results; None: nothing is written.
    overwrite, quiet : as in `simulator.run`.
    """
    for name, experiment in comparison.experiments.items():
        began_s = time.perf_counter()
        result = api.run(experiment, out=None if out is None else Path(out, name), overwrite=overwrite, quiet=quiet)
        metrics = {key: reduce(getitem, key.split("."), result.summary) for key in METRICS}
        yield name, Measured(metrics, notes(result.summary), time.perf_counter() - began_s)


def table(results: dict[str, Measured]) -> str:
    """Return the metrics as lines of text, a column for each variant."""
    rows = [["", *results]]
    rows += [[label, *(_text(measured.metrics[key]) for measured in results.values())]
             for key, label in METRICS.items()]
    first, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    return "\n".join("  ".join([f"{label:{first}}", *map(str.rjust, cells, widths)]) for label, *cells in rows)


def write(path: str | os.PathLike, results: dict[str, Measured]) -> None:
    """Write the metrics as JSON.

    Under `variants` stand name -> key of summary.json -> number or null.
    """
    content = {"schema": SCHEMA, "variants": {name: measured.metrics for name, measured in results.items()}}
    staged = Path(f"{path}.partial")
    staged.write_text(json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(staged, path)


def _check(comparison: Comparison, name: str, with_workload: bool) -> None:
    experiment = comparison.experiments[name]
    with faults_of(comparison.place(name)):
        if with_workload:       # it is the same for all
            assemble.prepare(experiment)
        else:
            assemble.latency_model(experiment, assemble.survey(experiment))


def _check_free_file(path: Path, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise InputErrors([f"{path}: exists; --overwrite replaces it, --out chooses another directory"])


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
