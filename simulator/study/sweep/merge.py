"""The tables of a study, made of its plan and segments: the same bytes regardless of machines and order of runs.

table.h5 has /runs, a row for each line of the plan, and /points; table.csv the runs; timings.csv the values that differ
from machine to machine; summary.json the number of runs by status.
"""
import csv
import io
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from simulator.core.hdf5_target import new_hdf5
from simulator.core.paths import remove
from simulator.errors import OutputError
from simulator.results.verdicts import GROWING, STABLE, TOO_SHORT
from simulator.study.statistics.intervals import Estimate, of_pairs, of_replications
from simulator.study.statistics.trend import backlog_of
from simulator.study.sweep.design import flattened
from simulator.study.sweep.lengthening import current_of
from simulator.study.sweep.study_file import Statistics, Study
from simulator.study.sweep.trial import DONE, STATUSES, Finished, Trial
from simulator.study.telling.said import Said

SCHEMA = 1
BACKLOGS = (STABLE, GROWING, TOO_SHORT)
LABELS = {"status": STATUSES, "backlog": BACKLOGS}      # names behind codes
NUM_REQUESTS = "workload.num_requests"
NAN = math.nan
LEADING = ("index", "id", "replication", "seed", "status")


def merge(study: Study, directory: Path, planned: list[Trial], finished: Mapping[str, Finished]) -> dict:
    """Write the tables; return the content of summary.json.

    Raises
    ------
    OutputError
        They cannot be written.
    """
    ends = [finished.get(trial.id) for trial in planned]
    runs = runs_table(planned, ends, own_requests(study))
    points = points_table(study.settings.statistics, study.settings.run.baseline, planned, finished)
    summary = summary_of(study, planned, ends, points)
    attributes = {"schema": SCHEMA, "name": study.name}
    _write(directory / "table.h5", lambda path: _hdf5(path, {"runs": runs, "points": points}, attributes))
    _write(directory / "table.csv", lambda path: path.write_bytes(csv_of(runs).encode()))
    _write(directory / "timings.csv", lambda path: path.write_bytes(_timings(planned, ends).encode()))
    text = json.dumps(summary, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    _write(directory / "summary.json", lambda path: path.write_bytes(text.encode()))
    return summary


def own_requests(study: Study) -> int | None:
    """Return the requests that the experiment of a study has; None: it has no key."""
    return getattr(study.base.workload.parameters, NUM_REQUESTS.rpartition(".")[2], None)


def runs_table(planned: list[Trial], ends: list[Finished | None], num_requests: int | None = None) -> np.ndarray:
    """Return /runs: a row for each line of the plan; status -1: it has not ended.

    num_requests : of trials that say nothing of it; None, in the table -1: a workload that has no such key.
    """
    assigned = [flattened(trial.assignment) for trial in planned]
    axes = _axis_columns(assigned)
    metrics = sorted({key for end in ends if end is not None for key in end.summary} - {"seed", "schema"})
    dtype = [("index", "<i8"), ("id", "S16"), ("replication", "<i8"), ("seed", "<i8"), ("status", "i1"),
             *((key, column.dtype) for key, column in axes.items()), ("num_requests", "<i8"),
             *((key, "<f8") for key in metrics), ("warmup_requests", "<f8"), ("backlog", "i1"), ("gpus", "<f8"),
             ("error", f"S{max([1, *(len((end.error or '').encode()) for end in ends if end is not None)])}")]
    table = np.zeros(len(planned), dtype)
    for name in ("index", "replication", "seed"):
        table[name] = [getattr(trial, name) for trial in planned]
    table["id"] = [trial.id.encode() for trial in planned]
    own = -1 if num_requests is None else num_requests
    table["num_requests"] = [trial.num_requests or given.get(NUM_REQUESTS, own)
                             for trial, given in zip(planned, assigned, strict=True)]
    table["status"] = [-1 if end is None else STATUSES.index(end.status) for end in ends]
    for key, column in axes.items():
        table[key] = column
    summaries = [{} if end is None else end.summary for end in ends]
    for key in metrics:
        table[key] = np.array([summary.get(key) for summary in summaries], float)       # None: NaN
    extras = [{} if end is None else end.extra for end in ends]
    for key in ("warmup_requests", "gpus"):
        table[key] = [extra.get(key, NAN) for extra in extras]
    table["backlog"] = [BACKLOGS.index(backlog_of(extra)) if "backlog" in extra else -1 for extra in extras]
    table["error"] = [(end.error or "").encode() if end is not None else b"" for end in ends]
    return table


def points_table(rules: Statistics, baseline: int | None, planned: list[Trial],
                 finished: Mapping[str, Finished]) -> np.ndarray:
    """Return /points: each metric with its interval and difference to the baseline.

    A point with a growing queue has no steady state: means stay, intervals are NaN.
    """
    by_point: dict[int, list[Trial]] = {}
    for trial in planned:
        by_point.setdefault(trial.point, []).append(trial)
    current = {point: current_of(trials) for point, trials in sorted(by_point.items())}
    done = {point: {trial.replication: finished[trial.id] for trial in trials
                    if trial.id in finished and finished[trial.id].status == DONE}
            for point, trials in current.items()}
    axes = _axis_columns([flattened(trials[0].assignment) for trials in current.values()])
    endings = ("", ".ci", ".delta", ".delta_ci") if baseline is not None else ("", ".ci")
    table = np.zeros(len(current), [("point", "<i8"), *((key, column.dtype) for key, column in axes.items()),
                                    ("n", "<i8"), ("backlog", "i1"), ("thin", "?"), ("deterministic", "?"),
                                    *((metric + ending, "<f8") for metric in rules.metrics for ending in endings)])
    table["point"] = list(current)
    for key, column in axes.items():
        table[key] = column
    for row, ends in enumerate(done.values()):
        table[row]["n"] = len(ends)
        table[row]["backlog"] = _backlog(list(ends.values()))
        table[row]["thin"] = any(end.extra["thin"] for end in ends.values())
        table[row]["deterministic"] = len(ends) > 1 and _are_alike([end.summary for end in ends.values()])
        for metric in rules.metrics:
            figures = _figures(rules.confidence, ends, done.get(baseline), metric)
            for ending, value in zip(endings, figures, strict=False):
                table[row][metric + ending] = value
    return table


def summary_of(study: Study, planned: list[Trial], ends: list[Finished | None], points: np.ndarray) -> dict:
    """Return the number of runs by status, and notes on the points."""
    counts = Counter("missing" if end is None else end.status for end in ends)
    errors = Counter(end.error for end in ends if end is not None and end.error)
    return {"schema": SCHEMA, "name": study.name, "runs": len(planned), "points": len(points),
            **{status: counts.get(status, 0) for status in (*STATUSES, "missing")},
            "complete": counts.get("missing", 0) == 0,
            "growing_points": int((points["backlog"] == BACKLOGS.index("growing")).sum()),
            "thin_points": int(points["thin"].sum()), "unmeasured_points": _unmeasured(study, points),
            "deterministic_points": int(points["deterministic"].sum()),
            "errors": dict(sorted(errors.items())), **study.risk_content, **Said().add_ends(ends).content()}


def _unmeasured(study: Study, points: np.ndarray) -> dict[str, int]:
    """Return for each metric the number of points with runs at which it is undefined, if there are any."""
    counts = {metric: int((np.isnan(points[metric]) & (points["n"] > 0)).sum())
              for metric in study.settings.statistics.metrics}
    return {metric: count for metric, count in counts.items() if count}


def csv_of(table: np.ndarray) -> str:
    """Return a table as CSV: enums by name, shortest floats, empty cells for NaN."""
    columns = []
    for name in table.dtype.names:
        column = table[name]
        if name in LABELS:
            columns.append(["" if code < 0 else LABELS[name][code] for code in column.tolist()])
        elif column.dtype.kind == "S":
            columns.append([_quoted(value.decode()) for value in column.tolist()])
        elif column.dtype.kind == "f":
            columns.append(_shortest(column))
        else:
            none = -1 if name == "num_requests" else None
            columns.append(["" if value == none else str(value) for value in column.tolist()])
    return "\n".join([",".join(map(_quoted, table.dtype.names)), *map(",".join, zip(*columns, strict=True)), ""])


def _quoted(text: str) -> str:
    """Return a text as a cell of CSV (RFC 4180)."""
    return '"' + text.replace('"', '""') + '"' if any(each in text for each in ',"\r\n') else text


def _shortest(column: np.ndarray) -> list[str]:
    """Return numbers as their shortest texts; NaN is empty."""
    if not len(column):
        return []
    texts = msgspec.json.encode(column.tolist()).decode()[1:-1].split(",")     # a tenth of the time of repr
    texts = ["" if text == "null" else text for text in texts]
    for row in np.flatnonzero(np.isinf(column)):
        texts[row] = repr(float(column[row]))
    return texts


def _figures(confidence: float, ends: Mapping[int, Finished], base: Mapping[int, Finished] | None,
             metric: str) -> tuple[float, ...]:
    """Return mean, half-width, and both of the difference to the baseline, over common replications."""
    values = _values(ends, metric)
    estimate = of_replications(list(values.values()), confidence) if values else Estimate(NAN, NAN)
    if _backlog(list(ends.values())) == BACKLOGS.index("growing"):
        estimate = estimate._replace(half_width=NAN)
    others = _values(base or {}, metric)
    both = [key for key in values if key in others]
    if not both:
        return (*estimate, NAN, NAN)
    return (*estimate, *of_pairs([values[key] for key in both], [others[key] for key in both], confidence))


def _values(ends: Mapping[int, Finished], metric: str) -> dict[int, float]:
    return {key: end.summary[metric] for key, end in ends.items() if end.summary.get(metric) is not None}


def _are_alike(summaries: list[dict[str, Any]]) -> bool:
    """Return whether runs have equal results, whatever their seeds."""
    first = summaries[0]
    return all(first.keys() == other.keys() and all(first[key] == other[key] for key in first if key != "seed")
               for other in summaries[1:])


def _backlog(ends: list[Finished]) -> int:
    """Return the worst backlog of any run; -1: no run has ended."""
    seen = {backlog_of(end.extra) for end in ends}
    return next((BACKLOGS.index(each) for each in (GROWING, TOO_SHORT, STABLE) if each in seen), -1)


def _axis_columns(assignments: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Return a column for each key that any run assigns: numbers, or text, JSON where there are both."""
    keys = list(dict.fromkeys(key for assignment in assignments for key in assignment))
    return {key: _column([assignment.get(key) for assignment in assignments]) for key in keys}


def _column(values: list) -> np.ndarray:
    kinds = {type(value) for value in values}
    if kinds <= {int} and all(-2**63 <= value < 2**63 for value in values):
        return np.array(values, "<i8")
    if kinds <= {int, float}:
        return np.array(values, "<f8")
    texts = [value if isinstance(value, str) else "" if value is None else json.dumps(value, sort_keys=True)
             for value in values]
    encoded = [text.encode() for text in texts]
    return np.array(encoded, f"S{max(1, *map(len, encoded))}" if len(encoded) > 1 else f"S{max(1, len(encoded[0]))}")


def _timings(planned: list[Trial], ends: list[Finished | None]) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["id", "wall_s", "attempts", "host", "began"])
    rows.writerows((trial.id, repr(end.wall_s), end.attempts, end.host, end.began)
                   for trial, end in zip(planned, ends, strict=True) if end is not None)
    return text.getvalue()


def _hdf5(path: Path, tables: dict[str, np.ndarray], attributes: dict[str, Any]) -> None:
    with new_hdf5(path) as file:
        file.attrs.update(attributes)
        for name, table in tables.items():
            dataset = file.create_dataset(name, data=table, track_times=False, chunks=True if len(table) else None,
                                          compression="gzip" if len(table) > 1000 else None)
            for column, labels in LABELS.items():
                if column in table.dtype.names:
                    dataset.attrs[f"{column}_names"] = list(labels)


def _write(path: Path, write: Callable[[Path], Any]) -> None:
    staged = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        write(staged)
        os.replace(staged, path)
    except OSError as error:
        remove(staged)
        raise OutputError(path, error) from error
