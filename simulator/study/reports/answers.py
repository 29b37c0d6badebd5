"""Two capacity searches side by side: differences of their answers, paired by common seeds."""
import math
from typing import Any, NamedTuple

import numpy as np

from simulator.results.figures.chart import Chart, Line, Panel, table_of
from simulator.results.figures.decimate import quantiles
from simulator.study.reports.page import Section, section
from simulator.study.reports.texts import difference, figure, percent, words
from simulator.study.statistics.intervals import Estimate, of_pairs
from simulator.study.sweep.identity import canonical


class Pair(NamedTuple):
    """The answers at a point of both searches; `seeds` : common seeds."""

    point: dict[str, Any]
    own: dict[str, Any]
    other: dict[str, Any]
    seeds: tuple[str, ...]


def other_name(own: dict[str, Any], other: dict[str, Any]) -> str:
    """Return the name of the search to compare with."""
    return other["name"] if other["name"] != own["name"] else f"{other['name']} (against)"


def pairs_of(own: dict[str, Any], other: dict[str, Any]) -> list[Pair]:
    """Return the points that both searches have."""
    theirs = {canonical(each.get("point", {})): each for each in other.get("points") or [other]}
    found = []
    for each in own.get("points") or [own]:
        partner = theirs.get(canonical(each.get("point", {})))
        if partner is not None:
            seeds = [seed for seed in each.get("by_seed") or {} if seed in (partner.get("by_seed") or {})]
            found.append(Pair(each.get("point", {}), each, partner, tuple(sorted(seeds, key=int))))
    return found


def paired(pair: Pair) -> Estimate:
    """Return the difference of two answers, its interval over common seeds."""
    if pair.own["answer"] is None or pair.other["answer"] is None:
        return Estimate(math.nan, math.nan)
    if len(pair.seeds) > 1:
        return of_pairs(*([each["by_seed"][seed] for seed in pair.seeds] for each in (pair.own, pair.other)))
    return Estimate(pair.own["answer"] - pair.other["answer"], math.nan)


def against_table(own: dict[str, Any], other: dict[str, Any]) -> Section:
    """Return the answers of both searches, and their differences."""
    title, pairs = f"Against {other_name(own, other)}", pairs_of(own, other)
    count = len(own.get("points") or [own])
    if not pairs:
        return Section(title, (), (), "No point of both is the same: nothing is compared.")
    alike = all(pair.own["vary"] == pair.other["vary"] for pair in pairs)
    if not alike:
        return Section(title, (), (), f"One varies {pairs[0].own['vary']}, the other {pairs[0].other['vary']}: their "
                                      "answers are not of one kind, and nothing is compared.")
    rows = []
    for pair in pairs:
        found = paired(pair)
        rows.append((words(pair.point, {}) or pair.own["vary"], figure(pair.own["answer"]),
                     figure(pair.other["answer"]), difference(found),
                     percent(found.mean, pair.other["answer"] or math.nan), str(len(pair.seeds))))
    says = (f"{own['name']} less {other_name(own, other)}. Differences are of what each seed that both have says the "
            "capacity is, so they need not be those of the answers; without such seeds they are, and have no interval."
            f" * it does not hold 0. {count - len(pairs)} points have no partner.")
    if _slo(own) != _slo(other):
        says += " The bounds are not the same."
    return section(title, ("", own["name"], other_name(own, other), "difference", "%", "common seeds"), rows, says,
                   "capacity.json")


def _slo(content: dict[str, Any]) -> Any:
    return (content.get("points") or [content])[0].get("slo")


def against_chart(own: dict[str, Any], other: dict[str, Any]) -> list[Chart]:
    """Return the distributions of the capacity over the seeds of both searches."""
    pairs = [pair for pair in pairs_of(own, other) if pair.own.get("by_seed") and pair.other.get("by_seed")
             and pair.own["vary"] == pair.other["vary"]]
    charts = []
    for number, pair in enumerate(pairs[:4]):
        samples = {own["name"]: pair.own["by_seed"], other_name(own, other): pair.other["by_seed"]}
        drawn = {name: quantiles(np.array(list(values.values()))) for name, values in samples.items()}
        marks = tuple(Line(name, values, shares * 100, style)
                      for style, (name, (values, shares)) in enumerate(drawn.items()))
        ranges = [f"{name}: {len(samples[name])} seeds from {figure(float(values[0]))} to {figure(float(values[-1]))}"
                     for name, (values, _) in drawn.items()]
        at = np.array((0, 25, 50, 75, 100))
        where = words(pair.point, {})
        charts.append(Chart(f"against_{number}", f"Capacity by seed{f': {where}' if where else ''}",
                            "; ".join(ranges) + ".", pair.own["vary"], (Panel("% of seeds at most", marks, (0, 102)),),
                            table_of(("%", *drawn), at, *(np.interp(at / 100, shares, values)
                                                          for values, shares in drawn.values()))))
    return charts
