"""A residual of measured iterations on top of a latency model: chosen by cross-validation, with its zone and errors.

Straight lines and curves of two stiffnesses compete. Each is fitted without one group of blocks of 10 s after the
other, and predicts the group that was left out: of `FOLDS` groups that take turns (errors inside the data), and of
`LOADS` groups of like load, by the mean number of sequences (errors at a load that was not measured). The mean of both
errors decides, and straighter wins unless the other is `BETTER`. The file has the errors of the winner beside the noise
of the data, by which iterations of equal counts differ.
"""
import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simulator.assembly.residual import different, prior_of
from simulator.config.layers import read_toml
from simulator.domain.step_table import AXES, StepTable, Zone
from simulator.domain.step_zone import zone_of
from simulator.errors import InputErrors
from simulator.study.calibration.residual_fit import STRAIGHT, Form, fitted
from simulator.study.calibration.step_batches import Priced
from simulator.study.measured.write import DATASET, NOT_KNOWN, STEPS_ABOUT

FILE = "steps.json"
STIFFNESSES = {"straight": STRAIGHT, "stiff": 0.1, "supple": 0.01}
FOLDS, LOADS = 5, 4
BETTER = 0.02                   # of the error
LEAST_ITERATIONS = 50
WARM_UP, SLOW = 50, 2.0         # of the first iterations of a log, those that took so many times their prediction
EQUAL = 1.15                    # tokens in KV of iterations with equal counts differ by less
LEAST_EQUAL = 5
ANY_RATIO = 1e9
NO_ZONE = Zone(((0.0, 1.0),) * 3, (0.0,) * 8)


class Errors(NamedTuple):
    """Relative errors: mean and median absolute, mean, and of the sum."""

    mape: float
    median_ape: float
    bias: float
    of_sum: float
    iterations: int


class Fit(NamedTuple):
    """A fitted residual.

    table : the residual. notes : for the user, a sentence each.
    """

    table: StepTable
    notes: tuple[str, ...]


def fit_residual(logs: list[Priced], experiment, scope: str, most_ratio: float) -> Fit:
    """Return the residual of measured iterations.

    Parameters
    ----------
    logs : with the times of the prior; held-out iterations do not count. experiment : of the prior.
    scope : of the measured times, as in StepTable. most_ratio : bound of the time over the prior's, and 1 over it.

    Raises
    ------
    InputErrors
        There are too few iterations.
    """
    notes: list[str] = [note for log in logs for note in log.notes]
    kept = [log.rows(~log.is_held) for log in logs]
    total = sum(len(log.prior_us) for log in kept)
    if total < LEAST_ITERATIONS:
        raise InputErrors([f"{logs[0].path}: {total} iteration{'' if total == 1 else 's'} to fit a residual to: "
                           f"expected {LEAST_ITERATIONS} or more, of several loads"])
    kept = [_warmed_up(log, notes) for log in kept]
    whole = _joined(kept)
    errors = {name: _validated(whole, stiffness, most_ratio) for name, stiffness in STIFFNESSES.items()}
    name = chosen(errors)
    if name is None:
        name = "straight"
        notes.append("all iterations lie in fewer than four blocks of 10 s: the residual is not cross-validated, and "
                     "is of straight lines.")
    table = table_of(fitted(whole.prior_us, whole.counts, whole.duration_us, STIFFNESSES[name]), whole.counts, scope,
                     prior_of(experiment.all_pools()[0]), most_ratio)
    predicted_us = table.predicted_us(whole.prior_us, whole.counts)
    is_bound = np.isclose(np.abs(np.log(predicted_us / whole.prior_us)), np.log(most_ratio))
    if is_bound.any():
        notes.append(f"{int(is_bound.sum()):,} of {len(is_bound):,} iterations lie at the bound of their ratio to the "
                     f"latency model, {most_ratio:g}: study.residual.most_ratio raises it; a latency model so far off "
                     "is better fitted first, by keys of [study.fit].")
    return Fit(table_with(table, _facts(whole, logs, table, name, errors)), tuple(notes))


def check_one_server(sets, experiments) -> None:
    """Make sure that logs are of one server, one version and equal priors.

    sets : question.DataSet, with iterations.

    Raises
    ------
    InputErrors
        They are not.
    """
    first = prior_of(experiments[0].all_pools()[0])
    for each, experiment in zip(sets[1:], experiments[1:], strict=True):
        if others := different(first, prior_of(experiment.all_pools()[0])):
            raise InputErrors([f"study.residual: {sets[0].name} and {each.name} are of different servers: "
                               f"{'; '.join(others)}: a residual is of one"])
    versions = {each.name: version_of(Path(each.steps.path)) for each in sets}
    if len(set(filter(None, versions.values()))) > 1:
        listed = ", ".join(f"{name}: {version}" for name, version in versions.items())
        raise InputErrors([f"study.residual: logs of several versions: {listed}; fit one at a time"])


def version_of(steps: Path) -> str | None:
    """Return engine and version of a log, as `import` wrote them, or None."""
    path = next((each for each in map(steps.with_name, (DATASET, STEPS_ABOUT)) if each.is_file()), None)
    about = read_toml(str(path)) if path else {}
    return None if about.get("version", NOT_KNOWN) == NOT_KNOWN else f"{about.get('engine')} {about['version']}"


def chosen(errors: dict[str, dict[str, Errors]]) -> str | None:
    """Return the best stiffness, the first unless one is `BETTER`; None: no errors."""
    scores = {name: np.mean([each.mape for each in found.values()]) for name, found in errors.items() if found}
    best = None
    for name, score in scores.items():
        if best is None or score < (1.0 - BETTER) * scores[best]:
            best = name
    return best


def table_of(form: Form, counts: np.ndarray, scope: str, prior: dict[str, Any], most_ratio: float) -> StepTable:
    """Return a form as the residual of a file, with the zone of its counts."""
    return StepTable(scope=scope, prior=prior, scale=form.scale, constant_us=form.constant_us, curves=form.curves,
                     zone=zone_of(counts), least_ratio=1.0 / most_ratio, most_ratio=most_ratio)


def without_zone(form: Form, most_ratio: float) -> StepTable:
    """Return a form as a residual that is for its `measured_us` alone."""
    return StepTable(scope="iteration", prior={}, scale=form.scale, constant_us=form.constant_us, curves=form.curves,
                     zone=NO_ZONE, least_ratio=1.0 / most_ratio, most_ratio=most_ratio)


def table_with(table: StepTable, fit: dict[str, Any]) -> StepTable:
    """Return a residual with the facts of its fit."""
    return StepTable(**{name: getattr(table, name) for name in table.__struct_fields__} | {"fit": fit})


def errors_of(predicted_us: np.ndarray, measured_us: np.ndarray) -> Errors:
    """Return the errors of predictions."""
    relative = predicted_us / measured_us - 1.0
    return Errors(float(np.abs(relative).mean()), float(np.median(np.abs(relative))), float(relative.mean()),
                  float(predicted_us.sum() / measured_us.sum() - 1.0), len(relative))


def noise_of(log: Priced) -> Errors | None:
    """Return the errors of the median of other iterations with equal counts.

    None: fewer than one of ten has `LEAST_EQUAL` others.
    """
    kv = np.floor(np.log(np.maximum(log.counts[:, 2], 1.0)) / np.log(EQUAL))
    _, group = np.unique(np.column_stack([log.counts[:, :2], kv]), axis=0, return_inverse=True)
    order = np.argsort(group.ravel(), kind="stable")
    predicted, measured = [], []
    for rows in np.split(order, np.flatnonzero(np.diff(group.ravel()[order])) + 1):
        if len(rows) > LEAST_EQUAL:
            times = np.sort(log.duration_us[rows])
            predicted.append(_medians_without(times))
            measured.append(times)
    if not measured or sum(map(len, measured)) < len(log.prior_us) / 10:
        return None
    return errors_of(np.concatenate(predicted), np.concatenate(measured))


def _medians_without(times: np.ndarray) -> np.ndarray:
    """Return for each of ascending times the median of the others."""
    count, place = len(times), np.arange(len(times))
    low, high = (count - 2) // 2, (count - 1) // 2
    return (times[low + (place <= low)] + times[high + (place <= high)]) / 2


def _warmed_up(log: Priced, notes: list[str]) -> Priced:
    """Return a log without the slow ones of its first iterations."""
    if len(log.prior_us) <= WARM_UP:
        return log
    line = without_zone(fitted(log.prior_us, log.counts, log.duration_us, STRAIGHT), ANY_RATIO)
    is_slow = log.duration_us > SLOW * line.measured_us(log.prior_us, log.counts)
    is_slow[WARM_UP:] = False
    if is_slow.any():
        notes.append(f"{log.path}: {int(is_slow.sum())} of the first {WARM_UP} iterations took more than {SLOW:g} "
                     "times as long as like ones later: taken as warming up, and left out.")
    return log.rows(~is_slow)


def _joined(logs: list[Priced]) -> Priced:
    """Return iterations of several logs as one; their blocks stay apart."""
    first, blocks = 0, []
    for log in logs:
        blocks.append(log.blocks + first)
        first += int(log.blocks.max(initial=0)) + 1
    arrays = {name: np.concatenate([getattr(log, name) for log in logs]) for name in (
        "duration_us", "prior_us", "counts", "is_held")}
    return logs[0]._replace(blocks=np.concatenate(blocks), **arrays)


def _validated(log: Priced, stiffness: float, most_ratio: float) -> dict[str, Errors]:
    """Return the errors of groups of blocks that were left out; {}: there are too few blocks."""
    blocks = np.unique(log.blocks)
    if len(blocks) < LOADS:
        return {}
    load = np.array([log.counts[log.blocks == each, 1].mean() for each in blocks])
    by_load = np.empty(len(blocks), int)
    by_load[np.argsort(load, kind="stable")] = np.arange(len(blocks)) * LOADS // len(blocks)
    row = np.searchsorted(blocks, log.blocks)
    groups = {"inside": np.arange(len(blocks)) % min(FOLDS, len(blocks)), "other_load": by_load}
    return {name: _left_out(log, group[row], stiffness, most_ratio) for name, group in groups.items()}


def _left_out(log: Priced, group: np.ndarray, stiffness: float, most_ratio: float) -> Errors:
    predicted = np.empty(len(group))
    for each in np.unique(group):
        rest = group != each
        form = fitted(log.prior_us[rest], log.counts[rest], log.duration_us[rest], stiffness)
        predicted[~rest] = without_zone(form, most_ratio).measured_us(log.prior_us[~rest], log.counts[~rest])
    return errors_of(predicted, log.duration_us)


def _facts(whole: Priced, logs: list[Priced], table: StepTable, name: str,
          errors: dict[str, dict[str, Errors]]) -> dict[str, Any]:
    """Return the facts of a fit, for readers of its file."""
    noise = noise_of(whole)
    return {
        "shape": name, "iterations": len(whole.prior_us),
        "data": [{"file": Path(log.path).name, "sha256": hashlib.sha256(Path(log.path).read_bytes()).hexdigest()}
                 for log in logs],
        "measured": {axis: [float(values.min()), float(values.max())]
                     for axis, values in zip(AXES, whole.counts.T, strict=True)},
        "prior": errors_of(whole.prior_us, whole.duration_us)._asdict(),
        "fitted": errors_of(table.predicted_us(whole.prior_us, whole.counts), whole.duration_us)._asdict(),
        "left_out": {key: each._asdict() for key, each in errors[name].items()},
        "noise": noise and noise._asdict(),
        "shapes": {shape: {key: each.mape for key, each in found.items()} for shape, found in errors.items()}}
