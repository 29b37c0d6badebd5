"""Main effects: the effect of one axis, all others averaged."""
import math

import numpy as np

from simulator.results.figures.chart import Chart, Errors, Intervals, Panel, table_of
from simulator.study.reports.curves import MOST_VALUES, panel_of
from simulator.study.reports.page import Section, section, shortened
from simulator.study.reports.runs import Runs, is_numeric, is_wide
from simulator.study.reports.texts import estimate, label_of, percent, plain, short_keys
from simulator.study.statistics.intervals import Estimate
from simulator.study.sweep.identity import canonical

IN_ONE = 4                      # panels of a chart
TITLE = "Main effects"
SAYS = ("Means over all points with this value of the axis, whatever the other axes are, and half-widths over the "
        "seeds; points without a run that is done do not count.")


def levels_of(runs: Runs, axis: str) -> list[tuple[object, tuple[int, ...]]]:
    """Return the values of an axis, each with the rows of its points; numbers rise."""
    found: dict[str, tuple[object, list[int]]] = {}
    for row, value in enumerate(runs.axis(axis)):
        found.setdefault(canonical(value), (value, []))[1].append(row)
    levels = [(value, tuple(rows)) for value, rows in found.values()]
    return sorted(levels, key=lambda each: each[0]) if is_numeric([value for value, _ in levels]) else levels


def effects_table(runs: Runs) -> Section | None:
    """Return means at each value of each axis; None: nothing to average over."""
    if len(runs.axes) < 2:
        return None
    metrics, short = runs.rules.metrics, short_keys(runs.axes)
    values, rows = {metric: runs.values(metric) for metric in metrics}, []
    for axis in runs.axes:
        if len(levels := levels_of(runs, axis)) <= MOST_VALUES:
            rows += [(short[axis], plain(value), str(len(own)),
                      *(estimate(*runs.estimate(values[metric], own)) for metric in metrics))
                     for value, own in levels]
    drawn = [short[axis] for axis in runs.axes if len(levels_of(runs, axis)) > MOST_VALUES]
    says = SAYS + (f" Of {', '.join(drawn)} the charts show means." if drawn else "")
    return section(TITLE, ("axis", "value", "points", *map(label_of, metrics)), rows, says, "table.csv")


def effect_charts(runs: Runs) -> list[Chart]:
    """Return the main effects of each axis; a single axis is shown by its curves."""
    if len(runs.axes) < 2:
        return []
    charts = []
    for number, axis in enumerate(runs.axes):
        levels = levels_of(runs, axis)
        if len(levels) > MOST_VALUES:
            continue
        make = _numbers if is_numeric([value for value, _ in levels]) else _names
        charts += make(runs, axis, levels, number)
    return charts


def _numbers(runs: Runs, axis: str, levels: list, number: int) -> list[Chart]:
    """Return charts of an axis of numbers, a panel for each metric."""
    x, charts = np.array([float(value) for value, _ in levels]), []
    short, metrics = short_keys(runs.axes)[axis], runs.rules.metrics
    for part, first in enumerate(range(0, len(metrics), IN_ONE)):
        chosen, panels, columns, said = metrics[first:first + IN_ONE], [], [], []
        for metric in chosen:
            found = [runs.estimate(runs.values(metric), rows) for _, rows in levels]
            known = np.array([not math.isnan(each.mean) for each in found], bool)
            grows = np.array([bool(runs.grows[list(rows)].any()) for _, rows in levels], bool)
            y, low, high = (np.array([getattr(each, name) for each in found]) for name in ("mean", "low", "high"))
            panels.append(panel_of(label_of(metric), (Errors("", x[known], y[known], low[known], high[known],
                                                            number % 6, grows[known]),)))
            columns.append([estimate(*each) for each in found])
            said.append(f"{label_of(metric)} {_range(found)}")
        says = f"From {plain(levels[0][0])} to {plain(levels[-1][0])}: {'; '.join(said)}."
        says += " Hollow points hold some whose queue grows." if runs.grows.any() else ""
        more = f" ({part + 1})" if len(metrics) > IN_ONE else ""
        charts.append(Chart(f"effect_{number}_{part}", f"Main effect of {short}{more}", says, axis, tuple(panels),
                            table_of((short, *map(label_of, chosen)), [plain(value) for value, _ in levels], *columns),
                            is_x_log=is_wide(x.tolist())))
    return charts


def _names(runs: Runs, axis: str, levels: list, number: int) -> list[Chart]:
    """Return a chart for each metric, for an axis with values that are no numbers."""
    short, charts = short_keys(runs.axes)[axis], []
    names = tuple(shortened(plain(value)) for value, _ in levels)
    for part, metric in enumerate(runs.rules.metrics):
        found = [runs.estimate(runs.values(metric), rows) for _, rows in levels]
        known = [row for row, each in enumerate(found) if not math.isnan(each.mean)]
        marks = (Intervals(tuple(names[row] for row in known), tuple(found[row].mean for row in known),
                           tuple(found[row].low for row in known), tuple(found[row].high for row in known),
                           tuple(number % 6 for _ in known)),) if known else ()
        says = f"{label_of(metric)}: {_spread(found, names)}."
        charts.append(Chart(f"effect_{number}_{part}", f"{label_of(metric)} by {short}", says, label_of(metric),
                            (Panel("", marks),),
                            table_of((short, label_of(metric)), [plain(value) for value, _ in levels],
                                     [estimate(*each) for each in found])))
    return charts


def _range(found: list[Estimate]) -> str:
    known = [each.mean for each in found if not math.isnan(each.mean)]
    return percent(known[-1] - known[0], known[0]) if len(known) > 1 else "not known"


def _spread(found: list[Estimate], names: tuple[str, ...]) -> str:
    known = [(each.mean, name) for each, name in zip(found, names, strict=True) if not math.isnan(each.mean)]
    if not known:
        return "no run is done"
    (low, least), (high, most) = min(known), max(known)
    return f"least with {least}, greatest with {most} ({percent(high - low, low)})" if len(known) > 1 else f"{least}"
