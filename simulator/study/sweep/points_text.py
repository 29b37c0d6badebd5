"""The points of a study as a table on a screen."""
import numpy as np

from simulator.study.sweep.merge import BACKLOGS
from simulator.study.telling.screen import lines_of, numbered, table_of

MOST_SHOWN = 40                 # points; larger studies are read from their files
FIXED = ("point", "n", "backlog", "thin", "deterministic")


def text_of(points: np.ndarray, metrics: tuple[str, ...]) -> str:
    """Return a line for each point: axes that differ, metrics with intervals.

    Differences to the baseline are in columns beside them, marked with * where their interval does not hold 0. Too many
    points: an empty text.

    points : from `merge.points_table`.
    """
    if not 0 < len(points) <= MOST_SHOWN:
        return ""
    names = points.dtype.names
    endings = tuple(metric + ending for metric in metrics for ending in ("", ".ci", ".delta", ".delta_ci"))
    axes = [name for name in names if name not in FIXED and name not in endings]
    axes = [axis for axis in axes if len(points) == 1 or len(set(points[axis])) > 1] or axes[:1]
    has_baseline = any(name.endswith(".delta") for name in names)
    columns, below = [], []
    for axis in axes:
        cells, meanings = numbered(_short(axis, axes), list(map(_value, points[axis])))
        columns.append([_short(axis, axes), *cells])
        below += meanings
    for metric in metrics:
        columns.append([metric, *(_estimate(row[metric], row[f"{metric}.ci"]) for row in points)])
        if has_baseline:
            columns.append(["to the first", *(
                _difference(row[f"{metric}.delta"], row[f"{metric}.delta_ci"]) for row in points)])
    columns.append(["", *(_remark(row) for row in points)])
    last, first = len(columns) - 1, len(axes)
    beside = range(first + 1, last, 2) if has_baseline else ()
    table = table_of(list(zip(*columns, strict=True)), first, left=(last,), beside=(*beside, last))
    return "\n".join([table, *[""] * bool(below), *map(lines_of, below)])


def _short(axis: str, axes: list[str]) -> str:
    """Return the last part of a key, where no other axis has the same one."""
    end = axis.rpartition(".")[2]
    return end if sum(other.rpartition(".")[2] == end for other in axes) == 1 else axis


def _value(value) -> str:
    if isinstance(value, bytes):
        return value.decode()
    return f"{value:g}" if isinstance(value, np.floating) else str(value)


def _estimate(mean: float, half: float) -> str:
    if np.isnan(mean):
        return "-"
    return f"{mean:,.4g}" if np.isnan(half) else f"{mean:,.4g} +- {half:.2g}"


def _difference(mean: float, half: float) -> str:
    if np.isnan(mean) or (mean == 0 and half == 0):
        return "-"
    sure = "" if np.isnan(half) or abs(mean) <= half else "*"
    return f"{mean:+,.4g}{sure}" if np.isnan(half) else f"{mean:+,.4g} +- {half:.2g}{sure}"


def _remark(row) -> str:
    if row["n"] == 0:
        return "no run is done"
    return "its queue grows" if row["backlog"] == BACKLOGS.index("growing") else ""
