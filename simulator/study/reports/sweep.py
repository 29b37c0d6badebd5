"""The report of a sweep."""
import math
from pathlib import Path

import numpy as np

from simulator.results.figures.chart import Chart, plural
from simulator.study.reports.curves import curves_of, metric_chart, numeric_axes
from simulator.study.reports.effects import effect_charts, effects_table
from simulator.study.reports.failures import counted, failures_table
from simulator.study.reports.kinds import files_of, origin_of
from simulator.study.reports.load import GOODPUT, load_charts
from simulator.study.reports.page import Page, Section, section
from simulator.study.reports.pairs import against_charts, against_tables
from simulator.study.reports.runs import Runs
from simulator.study.reports.said import said_section
from simulator.study.reports.texts import (
    difference,
    estimate,
    is_better_less,
    label_of,
    plain,
    short_keys,
    words,
)
from simulator.study.statistics.intervals import Estimate, of_pairs
from simulator.study.telling.said import Said

MOST_CHARTS = 32                # of curves and main effects; a page of more is over 2 MB
ARRIVALS = ("workload.arrival", "workload.rate_scale", "workload.time_scale", "workload.load")


def sweep_page(directory: Path, against: Path | None) -> Page:
    """Return the report of a sweep.

    against : a sweep to compare it with; None: none.

    Raises
    ------
    InputErrors
        Files are missing, or damaged.
    """
    runs = Runs(directory)
    other = None if against is None else Runs(against)
    ends = [runs.finished.get(trial.id) for trial in runs.planned]
    charts, left_out = _charts(runs)
    before = [_best(runs), _points(runs)]
    before += [found] if (found := effects_table(runs)) else []
    before += against_tables(runs, other) if other else []
    after = (failures_table(ends), _remarks(runs), said_section(Said().add_ends(ends).content()), _provenance(runs))
    is_good = all(end is not None and end.status in ("done", "refused") for end in ends)
    is_good = is_good and not runs.grows.any() and not runs.differing
    return Page(runs.name, _verdict(runs, ends), _answer(runs, charts), is_good, tuple(before),
                (*(against_charts(runs, other) if other else ()), *charts), after, left_out, files_of(directory))


def _charts(runs: Runs) -> tuple[list[Chart], tuple[str, ...]]:
    """Return the charts, and a sentence on charts that a page has no room for."""
    found = [metric_chart(runs, curves, metric, 100 * number + row)
             for number, axis in enumerate(numeric_axes(runs)) for curves in [curves_of(runs, axis)]
             for row, metric in enumerate(runs.rules.metrics)]
    found += effect_charts(runs)
    sentence = (f"{plural(len(found) - MOST_CHARTS, 'chart')} more are left out, so that the page stays small; the "
                "tables have their numbers.",) if len(found) > MOST_CHARTS else ()
    return [*load_charts(runs), *found[:MOST_CHARTS]], sentence


def _verdict(runs: Runs, ends: list) -> str:
    missing = sum(end is None for end in ends)
    lead = f"Incomplete: {missing:,} of {plural(len(ends), 'run')} have not ended. " if missing else ""
    growing = int(runs.grows.sum())
    steady = (f"; at {plural(growing, 'point')} the queue grows" if growing
              else "; no queue grows" if any(runs.ends) else "")
    return f"{lead}{plural(len(runs.points), 'point')}, {plural(len(ends), 'run')}: {counted(ends)}{steady}."


def _answer(runs: Runs, charts: list[Chart]) -> str:
    """Return the load up to which every SLO is kept; without loads or SLO, the best point by the first metric."""
    if best_goodput := [chart.says.partition(". ")[0] for chart in charts if chart.name == GOODPUT]:
        return f"{best_goodput[0].rstrip('.')}."
    rows = [row for row in _best(runs).rows if row[2] != "-"]
    if not rows:
        return "No point is steady, or nobody says whether more or less of these numbers is better."
    label, way, value, where, _ = rows[0]
    return f"{way.capitalize()} {label}: {value}, at {where or 'the experiment'}."


def _best(runs: Runs) -> Section:
    """Return the best steady point by each metric, and the number of others within noise of it."""
    short, rows = short_keys(runs.axes), []
    for metric in runs.rules.metrics:
        less = is_better_less(metric)
        if less is None:
            continue
        values = runs.values(metric)
        means = [math.nan if runs.grows[row] else runs.estimate(values, (row,)).mean for row in range(len(values))]
        gains = np.array(means) * (-1 if less else 1)
        if np.isnan(gains).all():
            rows.append((label_of(metric), "least" if less else "greatest", "-", "", ""))
            continue
        best = int(np.nanargmax(gains))
        rows.append((label_of(metric), "least" if less else "greatest", estimate(*runs.estimate(values, (best,))),
                     _where(runs, best, short), _equals(runs, values, gains, best)))
    return section("Best steady points", ("metric", "", "value", "where", "not told apart from it by noise"), rows,
                   "Of points whose queue does not grow. Means of replications, with half-widths of "
                   f"{runs.rules.confidence:.0%} intervals.")


def _equals(runs: Runs, values: np.ndarray, gains: np.ndarray, best: int) -> str:
    """Return the number of points that differ from the best one by no more than their paired interval."""
    count = 0
    for row in np.flatnonzero(~np.isnan(gains)).tolist():
        both = ~np.isnan(values[row]) & ~np.isnan(values[best])
        found = of_pairs(values[row][both], values[best][both], runs.rules.confidence)
        count += row != best and abs(found.mean) <= (0 if math.isnan(found.half_width) else found.half_width)
    return plural(count, "point") if count else "none"


def _where(runs: Runs, row: int, short: dict[str, str]) -> str:
    return words({key: value for key, value in runs.assignments[row].items() if key in short}, short)


def _points(runs: Runs) -> Section:
    """Return each point with its intervals, and differences to the baseline."""
    short, metrics, table = short_keys(runs.axes), runs.rules.metrics, runs.table
    columns = ["point", *short.values(), "runs done"]
    for metric in metrics:
        columns += [label_of(metric)] + [f"to point {runs.baseline}"] * (runs.baseline is not None)
    rows = []
    for row, each in enumerate(table):
        cells = [str(each["point"]), *(plain(runs.axis(key)[row]) for key in short), str(each["n"])]
        for metric in metrics:
            cells.append(estimate(float(each[metric]), float(each[f"{metric}.ci"])))
            if runs.baseline is not None:
                own = Estimate(float(each[f"{metric}.delta"]), float(each[f"{metric}.delta_ci"]))
                cells.append("-" if each["point"] == runs.baseline else difference(own))
        rows.append((*cells, "its queue grows" if runs.grows[row] else "" if each["n"] else "no run is done"))
    says = "Means over seeds with half-widths; a point whose queue grows has no steady state, and no interval."
    says += (" Differences are paired: of the same seeds; * their interval does not hold 0."
             if runs.baseline is not None else "")
    return section("Points", (*columns, ""), rows, says, "table.csv")


def _remarks(runs: Runs) -> Section:
    """Return remarks on the numbers for the reader."""
    table, count = runs.table, len(runs.points)
    said = [(f"{int(table['thin'].sum()):,} of {count:,} points", "have percentiles of too few requests (thin)")
            ] if table["thin"].any() else []
    if runs.differing:
        said.append(("not deterministic", f"{plural(len(runs.differing), 'run')} came out in two ways, of which the "
                                          f"first counts: {', '.join(runs.differing[:3])}"))
    if table["deterministic"].any():
        said.append((f"{int(table['deterministic'].sum()):,} of {count:,} points",
                     "came out alike with every seed: half-widths are 0"))
    if own := [key for key in runs.axes if key.startswith("workload.") and not key.startswith(ARRIVALS)]:
        said.append((", ".join(own), "changes the requests themselves: differences along it are not of the same "
                                     "requests, and no pairing helps"))
    if len(runs.seeds) == 1:
        said.append(("one seed", "no intervals: `seeds` of [study] asks for more"))
    return Section("Remarks", (), tuple(said), "" if said else "None.")


def _provenance(runs: Runs) -> Section:
    study = runs.asked["study"]
    ids = [trial.id for trial in runs.planned]
    return Section("Provenance", (), (
        ("study", f"sweep, design {study['design']}"), ("seeds", ", ".join(map(str, runs.seeds.values()))),
        ("runs", f"{len(ids):,}, ids {ids[0]} to {ids[-1]}; all in plan.jsonl and table.csv" if ids else "0"),
        *origin_of(runs.directory)))
