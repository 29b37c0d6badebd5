"""The report of a tuning study."""
import csv
import math
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from simulator.errors import InputErrors
from simulator.results.figures.chart import Bars, Chart, Intervals, Panel, plural, table_of
from simulator.study.reports.candidates import against_charts, against_tables, effect_charts, pareto_charts
from simulator.study.reports.failures import counted
from simulator.study.reports.kinds import files_of, json_of, origin_of, toml_of
from simulator.study.reports.page import Page, Section, section, shortened
from simulator.study.reports.said import said_section
from simulator.study.reports.texts import estimate, figure, label_of, short_keys, words
from simulator.study.sweep.names import RANKING, STUDY
from simulator.study.sweep.names import TUNE as SUMMARY
from simulator.study.sweep.segments import checked, read_all
from simulator.study.telling.said import Said
from simulator.study.tuning.held_out import held_out_lines
from simulator.study.tuning.tune_table import DISAGGREGATED

FEASIBLE = "feasible"
MOST_RANKS = 20                 # of the chart
FIXED = ("rank", "number", "id", "status", "front", "layout")
SHOWN = ("ttft_ms.p50", "ttft_ms.p99", "tpot_ms.p50", "tpot_ms.p99", "e2el_ms.p50", "e2el_ms.p99",
         "kv_cache.mean_usage", "preemptions")


class Tuned:
    """The result of a tuning study, read from its files.

    content : of tune.json. rows : of ranking.csv, the best first, infeasible ones last.

    Raises
    ------
    InputErrors
        Files are missing, or damaged.
    """

    def __init__(self, directory: Path):
        self.directory, self.content = directory, json_of(directory / SUMMARY)
        path = directory / RANKING
        try:
            with open(path, encoding="utf-8", newline="") as stream:
                self.rows = list(csv.DictReader(stream))
        except (OSError, ValueError) as error:
            raise InputErrors([f"{path}: cannot be read: {error}"]) from error
        self.name: str = self.content["name"]
        self.objectives: dict[str, str] = self.content["objectives"]
        self.columns = list(self.rows[0]) if self.rows else []

    @cached_property
    def ranked(self) -> list[dict[str, str]]:
        """The feasible candidates, the best first."""
        return [row for row in self.rows if row["status"] == FEASIBLE]

    @cached_property
    def all_axes(self) -> list[str]:
        """All keys of axes and layouts, also equal ones."""
        first = self.columns.index(next(iter(self.objectives))) if self.columns else 0
        return ["layout", *(key for key in self.columns[:first] if key not in FIXED)]

    @cached_property
    def axes(self) -> list[str]:
        """Keys that differ between candidates, layout included."""
        keys = self.all_axes
        return [key for key in keys if len({row[key] for row in self.rows} - {""}) > 1]

    @cached_property
    def names(self) -> dict[str, str]:
        """The names of the axes except the layout; generated pools by their roles."""
        return self._called([key for key in self.axes if key != "layout"])

    def _called(self, keys: list[str]) -> dict[str, str]:
        roles = keys
        if any(row["layout"] == DISAGGREGATED for row in self.rows):
            roles = [key.replace("pools.0.", "prefill.").replace("pools.1.", "decode.") for key in keys]
        short = short_keys(roles)
        return {key: short[role] for key, role in zip(keys, roles, strict=True)}

    @cached_property
    def columns_of_axes(self) -> dict[str, str]:
        """The names of the columns of the ranking that describe a candidate."""
        return {"layout": "layout"} | self._called([key for key in self.all_axes if key != "layout"])

    def values(self, key: str, rows: list[dict[str, str]]) -> np.ndarray:
        """Return a column of numbers; NaN where there is none."""
        return np.array([float(row[key]) if row.get(key) else math.nan for row in rows], float)

    def where(self, row: dict[str, str]) -> str:
        """Return a candidate in words."""
        own = {key: row[key] for key in self.names if row[key]}
        lead = row["layout"] if "layout" in self.axes else ""
        return ", ".join(filter(None, (lead, words(own, self.names)))) or "the experiment"

    def brief(self, row: dict[str, str]) -> str:
        """Return the values of a candidate."""
        values = "/".join(row[key] or "-" for key in self.names)
        return f"{row['layout']} {values}" if "layout" in self.axes else values

    def estimate(self, row: dict[str, str], key: str) -> str:
        """Return an objective of a candidate with its interval."""
        return estimate(*(float(row[name]) if row.get(name) else None for name in (key, f"{key}.ci")))


def tune_page(directory: Path, against: Path | None) -> Page:
    """Return the report of a tuning study.

    against : one to compare it with; None: none.

    Raises
    ------
    InputErrors
        Files are missing, or damaged.
    """
    ends = list(checked(read_all(directory)).finished.values())
    asked = toml_of(directory / STUDY)
    provenance = _provenance(directory, asked, ends)
    if not (directory / SUMMARY).is_file():
        name = str(asked.get("name", directory.name))
        return Page(name, f"Incomplete: the search has not come to an end; {plural(len(ends), 'run')}: "
                          f"{counted(ends)}.", "Run it again to go on.", False, (), (),
                    (said_section(Said().add_ends(ends).content()), provenance), (),
                    files_of(directory))
    tuned = Tuned(directory)
    other = None if against is None else Tuned(against)
    before, charts = [_ranking(tuned)], pareto_charts(tuned)
    if other is not None:
        before += against_tables(tuned, other)
        charts += against_charts(tuned, other)
    charts += _objectives(tuned) + effect_charts(tuned) + [_outcomes(tuned)]
    return Page(tuned.name, _verdict(tuned), _more(tuned), bool(tuned.ranked) and tuned.content["complete"],
                tuple(before), tuple(charts), (_others(tuned), said_section(tuned.content), provenance), (),
                files_of(directory))


def _verdict(tuned: Tuned) -> str:
    content = tuned.content
    lead = "" if content["complete"] else "Incomplete: not all that could run were tried in full. "
    counts = ", ".join(f"{count:,} {status.replace('_', ' ')}" for status, count in content["counts"].items())
    if not tuned.ranked:
        return f"{lead}Nothing qualifies of {plural(content['candidates'], 'candidate')}: {counts}."
    best = tuned.ranked[0]
    values = "; ".join(f"{label_of(key)} {tuned.estimate(best, key)}" for key in tuned.objectives)
    return f"{lead}Best of {plural(content['candidates'], 'candidate')}: {tuned.where(best)}: {values}."


def _more(tuned: Tuned) -> str:
    content = tuned.content
    counts = ", ".join(f"{count:,} {status.replace('_', ' ')}" for status, count in content["counts"].items())
    says = f"{counts}. Search: {content['search']}; load: {content['load']}."
    if (miss := content["nearest_miss"]) is not None:
        says += f" Nearest to qualify: {miss['layout']}, {words(miss['assignment'], {})}: {miss['why']}."
    elif len(tuned.objectives) > 1 and tuned.ranked:
        says += f" {len(content['front'])} are beaten by none in everything."
    return " ".join([says, *(f"{line[0].upper()}{line[1:]}." for line in held_out_lines(content.get("held_out")))])


def _ranking(tuned: Tuned) -> Section:
    columns = ("rank", *map(label_of, tuned.objectives), "rate", "GPUs", *tuned.columns_of_axes.values(),
               *map(label_of, SHOWN), "cost per hour", "thin")
    rows = [(row["rank"] + "*" * (row["front"] == "1" and len(tuned.objectives) > 1),
             *(tuned.estimate(row, key) for key in tuned.objectives), _cell(row, "rate"), row["gpus"],
             *(row[key] for key in tuned.columns_of_axes), *(_cell(row, key) for key in SHOWN),
             _cell(row, "cost_per_hour"), row["thin"])
            for row in tuned.ranked]
    says = "* nobody beats it in everything." if len(tuned.objectives) > 1 else ""
    if any(row["thin"] for row in tuned.ranked):
        says += " Thin: percentiles of too few requests."
    return section("Ranking", columns, rows, says.strip() if rows else "Nothing qualifies.", RANKING)


def _cell(row: dict[str, str], key: str) -> str:
    return figure(float(row[key])) if row.get(key) else "-"


def _objectives(tuned: Tuned) -> list[Chart]:
    """Return each objective of the first ranks, with intervals."""
    first, charts = tuned.ranked[:MOST_RANKS], []
    names = tuple(f"{row['rank']}: {shortened(tuned.brief(row), 27)}" for row in first)
    for number, (key, goal) in enumerate(tuned.objectives.items()):
        if not first:
            continue
        means, half = tuned.values(key, first), tuned.values(f"{key}.ci", first)
        marks = (Intervals(names, tuple(means.tolist()), tuple((means - half).tolist()),
                           tuple((means + half).tolist()), tuple(2 if row["front"] == "1" else 0 for row in first)),)
        says = (f"{'More' if goal == 'max' else 'Less'} is better. "
                + ("Squares are beaten by none in everything. " if len(tuned.objectives) > 1 else "")
                + (f"Names are {'layout and ' * ('layout' in tuned.axes)}{'/'.join(tuned.names.values())}. "
                   if tuned.names else "")
                + (f"The first {MOST_RANKS} of {len(tuned.ranked)} ranks." if len(tuned.ranked) > MOST_RANKS else
                   f"All {plural(len(first), 'rank')}."))
        charts.append(Chart(f"objective_{number}", f"{label_of(key)} by rank", says, label_of(key),
                            (Panel("", marks),), table_of(("rank", "candidate", label_of(key)),
                                                         [row["rank"] for row in first],
                                                         [tuned.where(row) for row in first],
                                                         [tuned.estimate(row, key) for row in first])))
    return charts


def _outcomes(tuned: Tuned) -> Chart:
    counts = Counter(row["status"] for row in tuned.rows)
    names = tuple(status.replace("_", " ") for status, _ in counts.most_common())
    values = tuple(float(count) for _, count in counts.most_common())
    says = f"{counts[FEASIBLE]:,} of {plural(len(tuned.rows), 'candidate')} are feasible; why not the others, below."
    return Chart("candidates", "What became of the candidates", says, "candidates",
                 (Panel("", (Bars(names, values),)),), table_of(("", "candidates"), names, values))


def _others(tuned: Tuned) -> Section:
    """Return why candidates are not in the ranking: by status and reason, all candidates."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in tuned.rows:
        if row["status"] != FEASIBLE:
            found.setdefault((row["status"], row["reason"]), []).append(row)
    rows = [(status.replace("_", " "), str(len(own)), why or "-", tuned.where(own[0]))
            for (status, why), own in sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))]
    count = sum(map(len, found.values()))
    return section("Not in the ranking", ("", "candidates", "why", "the first"), rows,
                   f"{count:,} of {plural(len(tuned.rows), 'candidate')}." if rows else "None.", RANKING)


def _provenance(directory: Path, asked: dict[str, Any], ends: list) -> Section:
    ids, seeds = sorted(end.id for end in ends), sorted({end.seed for end in ends})
    search = asked.get("study", {}).get("search")
    return Section("Provenance", (), (
        ("study", "tuning study" + (f", search {search}" if search else "")),
        ("seeds", ", ".join(map(str, seeds)) if len(seeds) < 12 else
                  f"{seeds[0]} to {seeds[-1]}, {len(seeds)} of them"),
        ("runs", f"{len(ids):,}: {counted(ends)}; ids {ids[0]} to {ids[-1]}, all in the segments" if ids else "0"),
        *origin_of(directory)))
