"""Candidates of a tuning study as charts: the front, main effects, two studies side by side."""
import math
from typing import Any

import numpy as np

from simulator.results.figures.chart import Chart, Intervals, Labelled, Line, Panel, Points, plural, table_of
from simulator.results.figures.decimate import quantiles
from simulator.study.reports.page import Section, section, shortened
from simulator.study.reports.texts import difference, figure, label_of, percent
from simulator.study.statistics.intervals import Estimate, of_replications
from simulator.study.sweep.identity import canonical

MOST_LEVELS = 12
MOST_POINTS = 2000              # of the cloud behind a front


def pareto_charts(tuned: Any) -> list[Chart]:
    """Return the front of each pair of objectives, on top of all feasible candidates."""
    keys, charts = list(tuned.objectives), []
    for number, (one, two) in enumerate((one, two) for at, one in enumerate(keys) for two in keys[at + 1:]):
        x, y = (tuned.values(key, tuned.ranked) for key in (one, two))
        is_on_front = np.array([row["front"] == "1" for row in tuned.ranked], bool)
        if not is_on_front.any():
            continue
        order = np.flatnonzero(is_on_front)[np.argsort(x[is_on_front], kind="stable")]
        others = np.flatnonzero(~is_on_front)[:MOST_POINTS]
        marks = (Points("feasible", x[others], y[others], 0, 5),
                 Labelled("front, by rank", x[order], y[order], tuple(tuned.ranked[row]["rank"] for row in order), 1,
                          len(keys) == 2))
        named = "; ".join(f"{tuned.ranked[row]['rank']}: {tuned.where(tuned.ranked[row])}" for row in order[:8])
        more = f"; and {len(order) - 8} more, in the table" if len(order) > 8 else ""
        goals = " and ".join(f"{'more' if tuned.objectives[key] == 'max' else 'less'} {label_of(key)}"
                             for key in (one, two))
        says = f"Better is {goals}. {plural(len(order), 'candidate')} beaten by none: {named}{more}."
        top = 1.12 * float(np.nanmax(y)) or 1.0
        charts.append(Chart(f"front_{number}", "Pareto front", says, label_of(one),
                            (Panel(label_of(two), marks, (0, top)),),
                            table_of(("rank", label_of(one), label_of(two), "candidate"),
                                     [tuned.ranked[row]["rank"] for row in order], x[order], y[order],
                                     [tuned.where(tuned.ranked[row]) for row in order])))
    return charts


def effect_charts(tuned: Any) -> list[Chart]:
    """Return means of objectives by value of each axis, over feasible candidates."""
    charts, short = [], {"layout": "layout"} | tuned.names
    for number, axis in enumerate(tuned.axes):
        levels: dict[str, list[dict[str, str]]] = {}
        for row in tuned.ranked:
            levels.setdefault(row[axis], []).append(row)
        if not 2 <= len(levels) <= MOST_LEVELS:
            continue
        names = sorted(levels, key=_order)
        for part, key in enumerate(tuned.objectives):
            found = [_spread(tuned.values(key, levels[name])) for name in names]
            marks = (Intervals(tuple(shortened(f"{name or 'has none'} ({len(levels[name])})") for name in names),
                               *(tuple(each[place] for each in found) for place in range(3)),
                               (number % 6,) * len(names)),)
            says = (f"Mean over the feasible candidates with this {short[axis]}, and from the least to the greatest of "
                    "them; how many they are in brackets.")
            charts.append(Chart(f"effect_{number}_{part}", f"{label_of(key)} by {short[axis]}", says, label_of(key),
                                (Panel("", marks),),
                                table_of((short[axis], "candidates", "mean", "least", "greatest"),
                                         [name or "-" for name in names], [str(len(levels[name])) for name in names],
                                         *([figure(each[place]) for each in found] for place in range(3)))))
    return charts


def _order(name: str) -> tuple:
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name


def _spread(values: np.ndarray) -> tuple[float, float, float]:
    known = values[~np.isnan(values)]
    return (float(known.mean()), float(known.min()), float(known.max())) if len(known) else (math.nan,) * 3


def _keys(tuned: Any) -> dict[str, dict[str, str]]:
    """Return the feasible candidates by their assignment, without empty columns."""
    first = tuned.columns.index(next(iter(tuned.objectives))) if tuned.columns else 0
    own = ["layout", *tuned.columns[6:first]]
    return {canonical({key: row[key] for key in own if row[key]}): row for row in tuned.ranked}


def _pairs(tuned: Any, other: Any) -> list[tuple[dict[str, str], dict[str, str]]]:
    theirs = _keys(other)
    return [(row, theirs[key]) for key, row in _keys(tuned).items() if key in theirs]


def _name(tuned: Any, other: Any) -> str:
    return other.name if other.name != tuned.name else f"{other.name} (against)"


def against_tables(tuned: Any, other: Any) -> list[Section]:
    """Return differences of candidates that both studies have, in all and one by one."""
    title, pairs = f"Against {_name(tuned, other)}", _pairs(tuned, other)
    keys = [key for key in tuned.objectives if key in other.objectives]
    if not keys or not pairs:
        return [Section(title, (), (), "No objective is one of both: nothing is compared." if not keys else
                        "No feasible candidate is one of both: nothing is paired; the charts show how those of each "
                        "lie.")]
    rows = []
    for key in keys:
        own, theirs = (tuned.values(key, [pair[side] for pair in pairs]) for side in (0, 1))
        gap = of_replications((own - theirs)[~np.isnan(own - theirs)])
        rows.append((label_of(key), figure(float(np.nanmean(own))), figure(float(np.nanmean(theirs))),
                     difference(gap), percent(gap.mean, float(np.nanmean(theirs)))))
    best = [(each.name, each.where(each.ranked[0]) if each.ranked else "none",
             *(each.estimate(each.ranked[0], key) if each.ranked else "-" for key in keys))
            for each in (tuned, other)]
    single = [(tuned.where(one), one["rank"], two["rank"], *(
        difference(_difference(tuned, key, one, two)) for key in keys)) for one, two in pairs]
    alone = len(tuned.ranked) - len(pairs), len(other.ranked) - len(pairs)
    return [section(f"{title}: the best of both", ("", "candidate", *map(label_of, keys)), best),
            section(title, ("objective", tuned.name, _name(tuned, other), "difference", "%"), rows,
                    f"{tuned.name} less {_name(tuned, other)}, of {plural(len(pairs), 'feasible candidate')} that both "
                    f"have; intervals over candidates. {alone[0]} and {alone[1]} have no partner."),
            section("Differences by candidate", ("candidate", f"rank, {tuned.name}", f"rank, {_name(tuned, other)}",
                                                 *map(label_of, keys)), single,
                    "Rankings have no value by seed, so half-widths are those of values that have nothing in common: "
                    "wider than paired ones.", "ranking.csv of both")]


def _difference(tuned: Any, key: str, *rows: dict[str, str]) -> Estimate:
    """Return the difference of two values, with the half-width for unrelated values."""
    one, two = tuned.values(key, list(rows))
    return Estimate(float(one - two), float(np.sqrt(np.square(tuned.values(f"{key}.ci", list(rows))).sum())))


def against_charts(tuned: Any, other: Any) -> list[Chart]:
    """Return the distributions of each objective over the feasible candidates of both."""
    charts = []
    for number, key in enumerate(key for key in tuned.objectives if key in other.objectives):
        samples = {name: values[~np.isnan(values)] for name, values in (
            (tuned.name, tuned.values(key, tuned.ranked)), (_name(tuned, other), other.values(key, other.ranked)))}
        drawn = {name: quantiles(values) for name, values in samples.items() if len(values)}
        marks = tuple(Line(name, values, shares * 100, style)
                      for style, (name, (values, shares)) in enumerate(drawn.items()))
        sentences = [f"{name}: {plural(len(values), 'candidate')}" + (
            f", half up to {figure(float(np.median(values)))}" if len(values) else "")
            for name, values in samples.items()]
        at = np.array((0, 10, 25, 50, 75, 90, 100))
        charts.append(Chart(f"against_{number}", f"{label_of(key)}: candidates of both", "; ".join(sentences) + ".",
                            label_of(key), (Panel("% at most so much", marks, (0, 102)),),
                            table_of(("%", *drawn), at, *(np.interp(at / 100, shares, values)
                                                          for values, shares in drawn.values()))))
    return charts
