"""A row of the score: one metric of one model on one accelerator, predicted by one backend."""
from collections.abc import Iterable

import msgspec
import numpy as np

from simulator.study.accuracy.case import UNITS, Case
from simulator.study.accuracy.data_set import Opened
from simulator.study.accuracy.errors import errors_of, spread_of
from simulator.study.accuracy.predict import OK, REFUSED, Prediction

PER_CENT = 100.0
SPLIT, BURSTS, OTHER = "split pools", "bursts", "closed loops and replays"      # kinds of load


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Errors in per cent; None: not defined, or not known.

    load : kind of load and deployment; medians are taken over data sets of one kind.
    n : pairs that were compared: runs, or requests of a replay. Where the status is not ok: runs with that status.
    outside_pct : predictions beyond or between the measured points of tables, of all predictions of tables.
    noise_pct : median relative difference of repeated measurements.
    not_completed : simulated requests that did not end; no other column counts them.
    coverage_pct : runs with the measured value inside their interval, of all runs with intervals.
    reason : why the status is not ok.
    """

    data_set: str
    purpose: str
    in_sample: bool
    level: str
    backend: str
    published: bool
    model: str
    gpu: str
    metric: str
    unit: str
    status: str
    n: int
    mape_pct: float | None = None
    median_ape_pct: float | None = None
    bias_pct: float | None = None
    mean_error_pct: float | None = None
    r: float | None = None
    p50_error_pct: float | None = None
    p90_error_pct: float | None = None
    p99_error_pct: float | None = None
    ks: float | None = None
    outside_pct: float | None = None
    noise_pct: float | None = None
    not_completed: int = 0
    wall_s: float | None = None
    reason: str = ""
    coverage_pct: float | None = None
    load: str = OTHER

    @property
    def key(self) -> tuple[str, ...]:
        """The key of a row."""
        return self.data_set, self.backend, self.model, self.gpu, self.metric


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One pair: a run, or a request of a replay."""

    data_set: str
    backend: str
    label: str
    metric: str
    unit: str
    measured: float
    predicted: float


def rows_of(data_set: Opened, backend: str, cases: list[Case],
            predictions: list[Prediction]) -> tuple[list[Row], list[Point]]:
    """Return the rows of a backend, and their pairs.

    Runs without a prediction have rows of their own, without a metric.
    """
    rows, points = [], []
    for model, gpu in dict.fromkeys((each.model, each.hardware) for each in predictions):
        group = [(case, each) for case, each in zip(cases, predictions) if (each.model, each.hardware) == (model, gpu)]
        common = _common(data_set, backend) | {"model": model, "gpu": gpu, "load": load_of(data_set, cases)}
        served = [(case, each) for case, each in group if each.status == OK]
        rows += [Row(**common, metric="", unit="", status=status, n=len(reasons), reason=_first_reason(reasons))
                 for status, reasons in _reasons(each for _, each in group).items()]
        for metric, unit in UNITS.items():
            pairs = [(case, case.measured[metric], each.values[metric]) for case, each in served
                     if metric in case.measured and metric in each.values]
            if not pairs:
                continue
            common |= {"metric": metric, "unit": unit, "noise_pct": _per_cent(getattr(data_set.says.noise, metric))}
            if reason := data_set.why_unusable(metric, model):
                rows.append(Row(**common, status=REFUSED, n=len(pairs), reason=f"not compared: {reason}"))
                continue
            covered = {"coverage_pct": _coverage_pct(metric, served)}
            rows.append(_row(common | covered, pairs, [each for _, each in served]))
            points += _points(data_set, backend, metric, pairs)
    return rows, points


def published_rows(data_set: Opened, cases: list[Case]) -> tuple[list[Row], list[Point]]:
    """Return the rows of published predictions of others."""
    rows, points = [], []
    names = [(_name(data_set, case, "model"), _name(data_set, case, "hardware")) for case in cases]
    for peer in data_set.says.peers:
        backend = f"{peer.name} (published)"
        for model, gpu in dict.fromkeys(names):
            group = [case for case, name in zip(cases, names) if name == (model, gpu)]
            for metric, unit in UNITS.items():
                pairs = [(case, case.measured[metric], case.published[peer.name][metric]) for case in group
                         if metric in case.measured and metric in case.published.get(peer.name, {})]
                if not pairs or data_set.why_unusable(metric, model):
                    continue
                common = _common(data_set, backend, is_published=True) | {
                    "in_sample": peer.name in data_set.says.fits, "model": model, "gpu": gpu, "metric": metric,
                    "load": load_of(data_set, cases), "unit": unit,
                    "noise_pct": _per_cent(getattr(data_set.says.noise, metric))}
                rows.append(_published_row(common, pairs))
                points += [_point(data_set, backend, case.label, metric, measured, said["mean"])
                           for case, measured, said in pairs if not isinstance(measured, np.ndarray)]
    return rows, points


def absent_row(data_set: Opened, backend: str) -> Row:
    """Return the row of a data set with missing files."""
    return Row(**_common(data_set, backend), model="", gpu="", metric="", unit="", status=REFUSED, n=0, reason=(
        f"files not found: {', '.join(data_set.absent)}; --root or SIM_DATA names the folder that has them"))


def load_of(data_set: Opened, cases: Iterable[Case]) -> str:
    """Return the kind of load of a data set, and of its deployment."""
    if any("pools" in case.tables for case in cases):
        return SPLIT
    return BURSTS if data_set.says.form == "burst" else OTHER


def _common(data_set: Opened, backend: str, is_published: bool = False) -> dict:
    says = data_set.says
    return {"data_set": says.name, "purpose": says.purpose, "in_sample": backend in says.fits, "level": says.level,
            "backend": backend, "published": is_published}


def _name(data_set: Opened, case: Case, kind: str) -> str:
    return str((data_set.says.experiment.get(kind, {}) | dict(case.tables.get(kind, {}))).get("name", ""))


def _reasons(predictions: Iterable[Prediction]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in predictions:
        if each.status != OK:
            found.setdefault(each.status, []).append(each.reason)
    return found


def _first_reason(reasons: list[str]) -> str:
    """Return the first of the reasons, and the number of others."""
    others = len(dict.fromkeys(reasons)) - 1
    return reasons[0] + (f" (and {others} other reasons)" if others else "")


def _row(common: dict, pairs: list[tuple], served: list[Prediction]) -> Row:
    measured, predicted = (np.concatenate([np.atleast_1d(pair[side]) for pair in pairs]) for side in (1, 2))
    is_pair = np.isfinite(measured) & np.isfinite(predicted)
    measured, predicted = measured[is_pair], predicted[is_pair]
    common = common | {"n": len(measured), "not_completed": sum(each.not_completed for each in served),
                       "wall_s": sum(each.wall_s for each in served)}
    if not len(measured):
        return Row(**common, status=REFUSED, reason="no request was completed")
    if asked := sum(each.asked for each in served):
        common["outside_pct"] = PER_CENT * sum(each.outside for each in served) / asked
    found = _shares(errors_of(predicted, measured))
    if isinstance(pairs[0][1], np.ndarray):
        spread = spread_of(predicted, measured)
        found |= {"p50_error_pct": PER_CENT * spread.p50, "p90_error_pct": PER_CENT * spread.p90,
                  "p99_error_pct": PER_CENT * spread.p99, "ks": spread.ks}
    return Row(**common, status=OK, **found)


def _coverage_pct(metric: str, served: list[tuple[Case, Prediction]]) -> float | None:
    """Return the share of intervals of a metric that hold the measured value; None: there are no intervals."""
    held = [low <= case.measured[metric] <= high for case, each in served if metric in each.intervals
            for low, high in (each.intervals[metric],)]
    return PER_CENT * sum(held) / len(held) if held else None


def _published_row(common: dict, pairs: list[tuple]) -> Row:
    if not isinstance(pairs[0][1], np.ndarray):
        found = errors_of(np.array([said["mean"] for _, _, said in pairs]), np.array([pair[1] for pair in pairs]))
        return Row(**common, status=OK, n=len(pairs), **_shares(found))
    _, measured, said = pairs[0]                # of a replay only means and percentiles are published
    measured = measured[np.isfinite(measured)]
    found = {"mean_error_pct": float(PER_CENT * (said["mean"] / measured.mean() - 1.0))}
    for name, q in (("p50", 50), ("p90", 90), ("p99", 99)):
        if name in said:
            found[f"{name}_error_pct"] = float(PER_CENT * (said[name] / np.percentile(measured, q) - 1.0))
    return Row(**common, status=OK, n=len(measured), **found)


def _shares(errors) -> dict[str, float | None]:
    shares = {f"{name}_pct": PER_CENT * getattr(errors, name) for name in ("mape", "median_ape", "bias", "mean_error")}
    return shares | {"r": errors.r}


def _per_cent(share: float | None) -> float | None:
    return None if share is None else PER_CENT * share


def _points(data_set: Opened, backend: str, metric: str, pairs: list[tuple]) -> list[Point]:
    found = []
    for case, measured, predicted in pairs:
        labels = [f"{case.label} {name}" for name in case.request_ids] if isinstance(measured, np.ndarray) \
            else [case.label]
        for label, left, right in zip(labels, np.atleast_1d(measured), np.atleast_1d(predicted)):
            if np.isfinite(left) and np.isfinite(right):
                found.append(_point(data_set, backend, label, metric, left, right))
    return found


def _point(data_set: Opened, backend: str, label: str, metric: str, measured: float, predicted: float) -> Point:
    return Point(data_set=data_set.says.name, backend=backend, label=label, metric=metric, unit=UNITS[metric],
                 measured=float(measured), predicted=float(predicted))
