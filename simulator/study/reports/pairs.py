"""Two sweeps side by side: differences of runs with equal assignment and seed, and distributions of both."""
import math
from typing import NamedTuple

import numpy as np

from simulator.results.figures.chart import Chart, Intervals, Line, Panel, plural, table_of
from simulator.results.figures.decimate import quantiles
from simulator.study.reports.page import Section, section
from simulator.study.reports.runs import Runs
from simulator.study.reports.texts import difference, estimate, figure, label_of, percent, short_keys, words
from simulator.study.statistics.intervals import Estimate, of_replications
from simulator.study.sweep.identity import canonical

SHARES = (10, 25, 50, 75, 90)


class Pairs(NamedTuple):
    """The common points and seeds of two sweeps.

    rows : of common points, in one and the other. columns : of replications with equal seeds, in one and the other.
    """

    rows: tuple[list[int], list[int]]
    columns: tuple[list[int], list[int]]


def pairs_of(runs: Runs, other: Runs) -> Pairs:
    """Return the common points and seeds: points of equal assignments, equal seeds."""
    def keys(each: Runs) -> dict[str, int]:
        return {canonical(assignment): row for row, assignment in enumerate(each.assignments)}

    own, others = keys(runs), keys(other)
    seeds, theirs = ({seed: column for column, seed in each.seeds.items()} for each in (runs, other))
    both = [key for key in own if key in others]
    alike = [seed for seed in seeds if seed in theirs]
    return Pairs(([own[key] for key in both], [others[key] for key in both]),
                 ([seeds[seed] for seed in alike], [theirs[seed] for seed in alike]))


def paired(runs: Runs, other: Runs, pairs: Pairs, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a metric of the runs that both have: (points, replications), twice."""
    return tuple(each.values(metric)[np.ix_(rows, columns)] for each, rows, columns in
                 zip((runs, other), *pairs, strict=True))


def overall(own: np.ndarray, others: np.ndarray, confidence: float) -> Estimate:
    """Return the mean difference over points, with its interval over the seeds.

    Only points with runs done for every seed in both count.
    """
    gaps = own - others
    gaps = gaps[~np.isnan(gaps).any(axis=1)]
    return of_replications(gaps.mean(axis=0), confidence) if gaps.size else Estimate(math.nan, math.nan)


def against_tables(runs: Runs, other: Runs) -> list[Section]:
    """Return the differences by metric, and by point."""
    pairs, title = pairs_of(runs, other), f"Against {other_name(runs, other)}"
    metrics = [metric for metric in runs.rules.metrics if not np.isnan(other.values(metric)).all()]
    if not pairs.rows[0] or not pairs.columns[0]:
        return [Section(title, (), (), "No point of both has the same assignment and a common seed: nothing is "
                                       "paired; the charts show how the runs of each lie.")]
    rows, by_point = [], []
    short, confidence = short_keys(runs.axes), runs.rules.confidence
    both = {metric: paired(runs, other, pairs, metric) for metric in metrics}
    for metric, (own, others) in both.items():
        found = overall(own, others, confidence)
        count = int((~np.isnan(own - others)).all(axis=1).sum())
        whole = ~np.isnan(own - others).any(axis=1)
        mine, theirs = (float(each[whole].mean()) if count else math.nan for each in (own, others))
        rows.append((label_of(metric), figure(mine), figure(theirs), difference(found), percent(found.mean, theirs),
                     f"{count:,}"))
    for at, row in enumerate(pairs.rows[0]):
        where = words({key: value for key, value in runs.assignments[row].items() if key in short}, short)
        cells = []
        for own, others in both.values():
            gap = own[at] - others[at]
            cells.append(difference(of_replications(gap[~np.isnan(gap)], confidence)))
        by_point.append((where or "the experiment", *cells))
    alone = [len(each.points) - len(pairs.rows[0]) for each in (runs, other)]
    says = (f"{runs.name} less {other_name(runs, other)}, of runs with the same assignment and seed: "
            f"{plural(len(pairs.rows[0]), 'point')}, {plural(len(pairs.columns[0]), 'seed')}. "
            f"{alone[0]:,} and {alone[1]:,} points have no partner. * the interval does not hold 0.")
    return [section(title, ("metric", runs.name, other_name(runs, other), "difference", "%", "points"), rows, says),
            section("Differences by point", ("point", *map(label_of, metrics)), by_point, "", "table.csv of both")]


def against_charts(runs: Runs, other: Runs) -> list[Chart]:
    """Return differences as intervals, and distributions over the runs of both."""
    pairs = pairs_of(runs, other)
    charts = [_relative(runs, other, pairs)] if pairs.rows[0] and pairs.columns[0] else []
    return charts + [_distributions(runs, other, metric) for metric in runs.rules.metrics]


def other_name(runs: Runs, other: Runs) -> str:
    """Return the name of the sweep to compare with."""
    return other.name if other.name != runs.name else f"{other.name} (against)"


def _relative(runs: Runs, other: Runs, pairs: Pairs) -> Chart:
    names, values, lows, highs = [], [], [], []
    for metric in runs.rules.metrics:
        own, others = paired(runs, other, pairs, metric)
        found = overall(own, others, runs.rules.confidence)
        whole = ~np.isnan(own - others).any(axis=1)
        by = abs(float(others[whole].mean())) if whole.any() else math.nan
        if by and not math.isnan(found.mean) and not math.isnan(by):
            names.append(label_of(metric))
            for place, value in ((values, found.mean), (lows, found.low), (highs, found.high)):
                place.append(100 * value / by)
    marks = (Intervals(tuple(names), tuple(values), tuple(lows), tuple(highs), (0,) * len(names)),) if names else ()
    says = (f"{runs.name} less {other_name(runs, other)}, in percent of the latter; intervals over common seeds. What "
            "does not touch 0 differs by more than chance.")
    return Chart("against_differences", "Paired differences", says, "%", (Panel("", marks),),
                 table_of(("metric", "difference, %", "low, %", "high, %"), names, values, lows, highs))


def _distributions(runs: Runs, other: Runs, metric: str) -> Chart:
    """Return the distribution functions of a metric over all runs that are done, of both."""
    samples = {each_name: found[~np.isnan(found)] for each_name, found in (
        (runs.name, runs.values(metric)), (other_name(runs, other), other.values(metric)))}
    drawn = {name: quantiles(values) for name, values in samples.items() if len(values)}
    marks = tuple(Line(name, values, shares * 100, style) for style, (name, (values, shares)) in
                  enumerate(drawn.items()))
    sentences = [f"{name}: half of {plural(len(samples[name]), 'run')} up to {estimate(float(np.median(values)), None)}"
                 for name, (values, _) in drawn.items()] + [f"{name} has none" for name in samples if name not in drawn]
    percent_at = np.array(SHARES)
    table = table_of(("%", *drawn), percent_at, *(np.interp(percent_at / 100, shares, values)
                                                  for values, shares in drawn.values()))
    return Chart(f"against_{metric.replace('.', '_')}", f"{label_of(metric)}: runs of both", "; ".join(sentences) + ".",
                 label_of(metric), (Panel("% of runs at most so much", marks, (0, 102)),), table)
