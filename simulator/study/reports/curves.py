"""Numbers of a sweep against an axis: a curve for each group of points, with error bars."""
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simulator.results.figures.chart import Chart, Errors, Panel, Points, Table, table_of
from simulator.results.figures.decimate import scattered
from simulator.study.reports.page import shortened
from simulator.study.reports.runs import Runs, is_numeric, is_wide
from simulator.study.reports.texts import estimate, figure, label_of, plain, short_keys, words
from simulator.study.sweep.identity import canonical

MOST_CURVES = 6                 # distinguishable by colour, dash and marker
MOST_VALUES = 40                # of an axis, for a curve; with more, a cloud and means
NUM_BINS = 8
NUM_COLUMNS = 250               # of pixels, of a cloud
LOG_FROM = 50                   # times the least value: from here on a linear axis shows only the largest
HOLLOW = "Hollow points have no steady state: their queue grows."


class Curve(NamedTuple):
    """The points of one curve: rows of `Runs`."""

    label: str
    rows: tuple[int, ...]


class Curves(NamedTuple):
    """The curves of a sweep against an axis.

    over : the axes that each curve is a mean over, as words of a sentence; "": none.
    """

    axis: str
    curves: tuple[Curve, ...]
    over: str


def curves_of(runs: Runs, axis: str) -> Curves:
    """Return a curve for each combination of the other axes.

    If there are more than `MOST_CURVES`: one for each value of the axis that changes the first metric most, means over
    the rest.
    """
    others = [key for key in runs.axes if key != axis]
    short = short_keys(runs.axes)
    whole = (Curve("", tuple(range(len(runs.points)))),)
    groups = _groups(runs, others)
    if not others or all(len({canonical(runs.axis(axis)[row]) for row in rows}) == 1 for rows in groups.values()):
        return Curves(axis, whole, "")
    if len(groups) <= MOST_CURVES:
        found = tuple(Curve(shortened(words({key: runs.axis(key)[rows[0]] for key in others}, short), 48), rows)
                      for rows in groups.values())
        return Curves(axis, found, "")
    few = {key: found for key in others if len(found := _groups(runs, [key])) <= MOST_CURVES}
    names = [short[key] for key in others]
    if not few:
        return Curves(axis, whole, ", ".join(names))
    values = runs.values(runs.rules.metrics[0])
    by = max(few, key=lambda key: effect_of(runs, values, list(few[key].values())))
    found = tuple(Curve(shortened(f"{short[by]} {plain(runs.axis(by)[rows[0]])}", 48), rows)
                  for rows in few[by].values())
    return Curves(axis, found, ", ".join(short[key] for key in others if key != by))


def effect_of(runs: Runs, values: np.ndarray, groups: Sequence[Sequence[int]]) -> float:
    """Return the distance of the means of groups, relative; 0: not known."""
    means = np.array([runs.estimate(values, rows).mean for rows in groups])
    means = means[~np.isnan(means)]
    return float(np.ptp(means) / (abs(means.mean()) or 1.0)) if len(means) else 0.0


def _groups(runs: Runs, keys: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the rows of points by their values of some axes."""
    found: dict[str, list[int]] = {}
    for row, each in enumerate(runs.assignments):
        found.setdefault(canonical([each.get(key) for key in keys]), []).append(row)
    return {key: tuple(rows) for key, rows in found.items()}


def drawn(runs: Runs, curve: Curve, axis: str, values: np.ndarray, style: int, label: str | None = None) -> Errors:
    """Return a curve: a mean with its interval at each value that has runs."""
    at: dict[float, list[int]] = {}
    for row in curve.rows:
        at.setdefault(float(runs.axis(axis)[row]), []).append(row)
    found = [(x, runs.estimate(values, rows), bool(runs.grows[rows].any())) for x, rows in sorted(at.items())]
    found = [each for each in found if not math.isnan(each[1].mean)]
    return Errors(curve.label if label is None else label, np.array([x for x, _, _ in found]),
                  *(np.array([getattr(one, name) for _, one, _ in found]) for name in ("mean", "low", "high")),
                  style, np.array([grows for *_, grows in found], bool))


def panel_of(label: str, marks: Sequence, floor: float | None = 0.0) -> Panel:
    """Return a panel of curves.

    It is logarithmic where a linear one would show only the largest value.

    floor : of a linear axis; None: below the least.
    """
    lows = np.concatenate([np.fmin(mark.y, getattr(mark, "low", mark.y)) for mark in marks if hasattr(mark, "x")]
                          or [np.zeros(0)])
    highs = np.concatenate([np.fmax(mark.y, getattr(mark, "high", mark.y)) for mark in marks if hasattr(mark, "x")]
                           or [np.zeros(0)])
    levels = [mark.y for mark in marks if not hasattr(mark, "x")]
    if not len(lows):
        return Panel(label, tuple(marks), (0, 1))
    means = np.concatenate([mark.y for mark in marks if hasattr(mark, "x")])
    least, low, high = float(means.min()), float(lows.min()), float(max(highs.max(), *levels, means.max()))
    if least >= 1 and high > LOG_FROM * least:
        return Panel(label, tuple(marks), (10.0 ** math.floor(math.log10(least)), 1.6 * high), is_log=True)
    span = (high - min(low, floor if floor is not None else low)) or abs(high) or 1.0
    bottom = floor if floor is not None and low >= floor else low - 0.08 * span
    return Panel(label, tuple(marks), (bottom, high + 0.12 * span))


def metric_chart(runs: Runs, curves: Curves, metric: str, number: int) -> Chart:
    """Return a metric against an axis."""
    values = runs.values(metric)
    axis, short = curves.axis, short_keys(runs.axes)[curves.axis]
    x = [float(each) for each in runs.axis(axis)]
    if len(set(x)) > MOST_VALUES:
        return _cloud(runs, axis, metric, values, number)
    marks = [drawn(runs, curve, axis, values, style) for style, curve in enumerate(curves.curves)]
    panel = panel_of(label_of(metric), marks)
    says = [f"{label_of(metric)}: {_extremes(marks)}."] if any(len(mark.x) for mark in marks) else ["No run is done."]
    says += [f"Means over {curves.over}."] if curves.over else []
    says += [HOLLOW] if any(mark.hollow.any() for mark in marks) else []
    says += ["The scale is logarithmic."] if panel.is_log else []
    return Chart(f"curve_{number}", f"{label_of(metric)} against {short}", " ".join(says), axis, (panel,),
                 table_of_curves(short, marks), is_x_log=is_wide(x))


def _extremes(marks: Sequence[Errors]) -> str:
    """Return the places of the least and the greatest value."""
    found = [(float(y), float(x), mark.label) for mark in marks for x, y in zip(mark.x, mark.y, strict=True)]
    return " and ".join(f"{word} {figure(y)} at {figure(x)}" + (f" ({label})" if label else "")
                        for word, (y, x, label) in (("least", min(found)), ("greatest", max(found))))


def table_of_curves(short: str, marks: Sequence[Errors]) -> Table:
    """Return the data of curves: a row for each point of each."""
    rows = [(figure(float(x)), mark.label, estimate(float(y), float(high - y)), "queue grows" * bool(grows))
            for mark in marks for x, y, high, grows in zip(mark.x, mark.y, mark.high, mark.hollow, strict=True)]
    return table_of((short, "curve", "mean and interval", ""), *zip(*rows, strict=True)) if rows else Table((), ())


def _cloud(runs: Runs, axis: str, metric: str, values: np.ndarray, number: int) -> Chart:
    """Return all points, and means of groups of neighbours, for an axis with drawn values."""
    x = np.array([float(each) for each in runs.axis(axis)])
    with np.errstate(invalid="ignore"):
        count = (~np.isnan(values)).sum(axis=1)
        y = np.where(count > 0, np.nansum(values, axis=1) / np.maximum(count, 1), np.nan)
    known = np.flatnonzero(~np.isnan(y))
    order = known[np.argsort(x[known], kind="stable")]
    parts = [part for part in np.array_split(order, NUM_BINS) if len(part)]
    middle, mean = (np.array([float(each[part].mean()) for part in parts]) for each in (x, y))
    marks = (Points("points", *scattered(x[order], y[order], NUM_COLUMNS), 0),
             Errors(f"means of {NUM_BINS} groups", middle, mean, np.full(len(middle), np.nan),
                    np.full(len(middle), np.nan), 1))
    short = short_keys(runs.axes)[axis]
    says = (f"Each of {len(known):,} points, and means of {len(parts)} groups of neighbours, which all other axes "
            "vary within.")
    says += " Of each pixel column the least and the greatest are drawn." if len(known) > 2 * NUM_COLUMNS else ""
    panel = panel_of(label_of(metric), marks)
    return Chart(f"curve_{number}", f"{label_of(metric)} against {short}", says, axis, (panel,),
                 table_of((short, "mean of the group"), middle, mean), is_x_log=is_wide(x.tolist()))


def numeric_axes(runs: Runs) -> list[str]:
    """Return the axes of numbers, at two values or more."""
    return [key for key in runs.axes if is_numeric(runs.axis(key))]
