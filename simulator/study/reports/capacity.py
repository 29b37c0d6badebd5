"""The report of a capacity search."""
import math
from pathlib import Path
from typing import Any

import numpy as np

from simulator.results.figures.chart import Chart, Errors, Intervals, Level, Panel, Points, Rule, plural, table_of
from simulator.results.figures.chart import number as shown
from simulator.results.verdicts import STABLE, TOO_SHORT
from simulator.study.capacity.bounds import BACKLOG
from simulator.study.capacity.verdict import THIN
from simulator.study.reports.answers import against_chart, against_table
from simulator.study.reports.curves import panel_of
from simulator.study.reports.failures import counted, failures_table
from simulator.study.reports.kinds import files_of, json_of, origin_of, toml_of
from simulator.study.reports.mixes import mix_page
from simulator.study.reports.page import Page, Section, section, shortened
from simulator.study.reports.runs import is_numeric, is_wide
from simulator.study.reports.said import said_section
from simulator.study.reports.texts import estimate, figure, label_of, plain, short_keys, words
from simulator.study.sweep.names import CAPACITY as CAPACITY_JSON
from simulator.study.sweep.names import STUDY
from simulator.study.sweep.segments import checked, read_all
from simulator.study.telling.said import AGAIN, Said

VERDICTS = (("pass", 2), ("fail", 1), ("pass, undecided", 4), ("fail, undecided", 3), ("thin", 0))      # word, style
MOST_POINTS = 12                # of a study with axes: number of searches that are drawn


def capacity_page(directory: Path, against: Path | None) -> Page:
    """Return the report of a capacity search.

    against : one to compare it with; None: none.

    Raises
    ------
    InputErrors
        Files are missing, or damaged.
    """
    content, asked = json_of(directory / CAPACITY_JSON), toml_of(directory / STUDY)
    ends = list(checked(read_all(directory)).finished.values())
    after = (failures_table(ends), said_section(content or Said().add_ends(ends).content()),
             _provenance(directory, asked, ends))
    name = str(content.get("name", asked.get("name", directory.name)))
    if not content:
        return Page(name, f"Incomplete: the search has not come to an end; {plural(len(ends), 'run')}: "
                          f"{counted(ends)}.", "Run it again to go on.", False, (), (), after, (),
                    files_of(directory))
    if "kinds" in content:
        return mix_page(name, content, None if against is None else json_of(against / CAPACITY_JSON), after,
                        files_of(directory))
    answers = [current(each) for each in content.get("points") or [content]]
    other = None if against is None else json_of(against / CAPACITY_JSON)
    before = [_answers(answers), *(_notes(answers))]
    charts = _by_axis(answers)
    if other is not None:
        before.append(against_table(content, other))
        charts += against_chart(content, other)
    for number, each in enumerate(answers[:MOST_POINTS]):
        charts += [_sequence(each, number), _curves(each, number)]
    tables = [_probes(each) for each in answers]
    left_out = (f"Searches of {plural(len(answers) - MOST_POINTS, 'point')} more are in the tables alone.",
                ) if len(answers) > MOST_POINTS else ()
    return Page(name, _verdict(answers), _more(answers), all(_is_good(each) for each in answers), tuple(before),
                tuple(charts), (*tables, *after), left_out, files_of(directory))


def current(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with the current keys, for any version that wrote it."""
    return {"thin": None, "repeated_with_new_seeds": answer.get("verified"), "repeats": answer.get("verification")
            } | answer


def _is_good(answer: dict[str, Any]) -> bool:
    return answer["answer"] is not None and answer["repeated_with_new_seeds"] is not False and answer["monotone"]


def _verdict(answers: list[dict[str, Any]]) -> str:
    """Return the answer in a line."""
    if len(answers) > 1:
        found = [each for each in answers if each["answer"] is not None]
        return f"{len(found)} of {plural(len(answers), 'point')} have an answer: {', '.join(map(_value, answers))}."
    (answer,) = answers
    if answer["answer"] is None and answer["thin"]:
        thin = answer["thin"]
        return (f"Nothing can be told: too few requests for {', '.join(thin['metrics'])}; "
                f"{thin['requests_needed']:,} would do, a run has {thin['requests']:,}.")
    if answer["answer"] is None:
        return f"Nothing passes: even {answer['vary']} = {plain(float(_worst(answer)['value']))} misses the bounds."
    state = {True: AGAIN, False: f"not {AGAIN}", None: "not asked for with new seeds"}[
        answer["repeated_with_new_seeds"]]
    return f"{answer['vary']}: {_value(answer)}, {state}."


def _worst(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the failed probe that is nearest to passing: the last one."""
    return answer["probes"][-1]


def _more(answers: list[dict[str, Any]]) -> str:
    """Return the binding bound."""
    (answer, *others) = answers
    if others:
        return "A search for each point; the tables below have all probes."
    misses = f"Beyond it: {answer['misses']}." if answer["misses"] else "No value up to the bound of the range fails."
    return f"{misses} {plural(len(answer['probes']), 'value')} probed, {len(answer['repeats'])} with new seeds."


def _value(answer: dict[str, Any]) -> str:
    """Return an answer with its interval."""
    if answer["answer"] is None:
        return "none"
    ends = f" ({figure(answer['interval'][0])} to {figure(answer['interval'][1])})" if answer["interval"] else ""
    return f"{figure(answer['answer'])}{ends}"


def _answers(answers: list[dict[str, Any]]) -> Section:
    """Return the answer of each point, and its throughput and cost."""
    short = short_keys(dict.fromkeys(key for each in answers for key in each.get("point", {})))
    rows = [(words(each.get("point", {}), short) or each["vary"], _value(each), each["binding"] or "-",
             {True: "yes", False: "no", None: "-"}[each["repeated_with_new_seeds"]],
             "yes" if each["monotone"] else "no",
             *(figure(each[key]) for key in ("gpus", "per_gpu", "output_tokens_per_s", "tokens_per_s_per_gpu",
                                             "cost_per_million_output_tokens"))) for each in answers]
    bounds = "; ".join(f"{key} {_side(sides)}" for key, sides in answers[0].get("slo", {}).items())
    return section("Answer", ("", "answer (interval)", "binds", AGAIN, "monotone", "GPUs", "per GPU",
                              "output tokens/s", "tokens/s per GPU", "cost per 1M tokens"), rows,
                   f"What must hold: {bounds}." if bounds else "", CAPACITY_JSON)


def _side(sides: Any) -> str:
    if not isinstance(sides, dict):
        return str(sides)
    return ", ".join(f"{'at most' if side == 'max' else 'at least'} {plain(float(limit))}"
                     for side, limit in sides.items())


def _notes(answers: list[dict[str, Any]]) -> list[Section]:
    notes = [(words(each.get("point", {}), {}) or "note", note) for each in answers for note in each["notes"]]
    return [Section("Notes", (), tuple(notes))] if notes else []


def _all_probes(answer: dict[str, Any]) -> list[tuple[dict[str, Any], bool]]:
    """Return all probes in their order, and whether each has new seeds."""
    return [(each, False) for each in answer["probes"]] + [(each, True) for each in answer["repeats"]]


def _probes(answer: dict[str, Any]) -> Section:
    """Return each probe with its verdict: met or missed, stable or growing, and the room to every bound."""
    keys = list(dict.fromkeys(key for probe, _ in _all_probes(answer) for key in probe["margins"]))
    rows = []
    for number, (probe, is_new) in enumerate(_all_probes(answer), 1):
        margins = (probe["margins"].get(key) for key in keys)
        rows.append((str(number), plain(float(probe["value"])), probe["verdict"] + " (new seeds)" * is_new,
                     backlog_of(probe), str(len(probe["seeds"])), f"{probe['requests']:,}",
                     *("-" if each is None else percent_of(each) for each in margins), "; ".join(probe["reasons"])))
    where = words(answer.get("point", {}), {})
    return section(f"Probes{f' of {where}' if where else ''}",
                   ("", answer["vary"], "verdict", "backlog", "seeds", "requests", *(f"room, {key}" for key in keys),
                    "why"), rows, "Room is to the bound, relative to it, with its half-width; below 0 it is missed.",
                   CAPACITY_JSON)


def percent_of(margin: dict[str, float | None]) -> str:
    """Return the room to a bound with its half-width."""
    mean, half = margin["mean"], margin["half_width"]
    return "-" if mean is None else f"{mean:+.1%}" + ("" if half is None else f" ± {half:.1%}")


def backlog_of(probe: dict[str, Any]) -> str:
    """Return whether the queue of a probe grew."""
    if any(reason.startswith(f"{THIN}: too few requests for {BACKLOG}") for reason in probe["reasons"]):
        return TOO_SHORT
    found = [reason for reason in probe["reasons"] if reason.startswith(BACKLOG)]
    return found[0].split()[1] if found else STABLE


def _sequence(answer: dict[str, Any], number: int) -> Chart:
    """Return the values probed, in their order, with their verdicts."""
    probes = _all_probes(answer)
    x = np.arange(1, len(probes) + 1, dtype=float)
    y = np.array([float(probe["value"]) for probe, _ in probes])
    nothing = np.full(len(x), math.nan)
    marks: list[Any] = [Errors("", x, y, nothing, nothing, 5)]
    for word, style in VERDICTS:
        chosen = np.array([probe["verdict"] == word for probe, _ in probes], bool)
        if chosen.any():
            marks.append(Points(word, x[chosen], y[chosen], style, 8))
    if answer["answer"] is not None:
        marks.append(Level(answer["answer"], f"answer {figure(answer['answer'])}"))
    first = len(answer["probes"])
    if len(probes) > first:
        marks.append(Rule(first + 0.5, "new seeds"))
    where = words(answer.get("point", {}), short_keys(answer.get("point", {})))
    says = (f"{plural(first, 'value')} probed, then {len(probes) - first} with new seeds; in the order in "
            "which they were asked for.")
    table = table_of(("probe", answer["vary"], "verdict", "backlog"), [str(each) for each in range(1, len(probes) + 1)],
                     y, [probe["verdict"] for probe, _ in probes], [backlog_of(probe) for probe, _ in probes])
    wide = is_wide(y.tolist()) and min(y) >= 1
    panel = Panel(shortened(answer["vary"], 28), tuple(marks), (0.8 * float(y.min()), 1.25 * float(y.max())), wide)
    return Chart(f"search_{number}", f"Search sequence{f': {where}' if where else ''}", says, "probe", (panel,), table,
                 (0.5, len(probes) + 0.5), is_x_whole=True)


def _curves(answer: dict[str, Any], number: int) -> Chart:
    """Return goodput and every bound against the varied key."""
    rows = answer["curve"]
    x = np.array([float(row["value"]) for row in rows])
    nothing = np.full(len(x), math.nan)
    good = _column(rows, "request_goodput")
    panels, columns, labels = [], [], []
    for label, values in (("goodput, req/s", good), ("served, req/s", _column(rows, "request_throughput"))):
        if not np.isnan(values).all():
            panels.append(panel_of(label, (_errors(x, values, nothing, 2),)))
            labels.append(label)
            columns.append([figure(float(value)) for value in values])
    for key, sides in answer.get("slo", {}).items():
        if not isinstance(sides, dict) or not rows or key not in rows[0]:
            continue
        values, half = _column(rows, key), _column(rows, f"{key}.ci")
        levels = [Level(limit, f"{'at most' if side == 'max' else 'at least'} {shown(limit)}")
                  for side, limit in sides.items()]
        panels.append(panel_of(label_of(key), (_errors(x, values, half, 0), *levels)))
        labels.append(label_of(key))
        columns.append([estimate(*each) for each in zip(values.tolist(), half.tolist(), strict=True)])
    if answer["answer"] is not None:
        panels = [panel._replace(marks=(*panel.marks, Rule(answer["answer"], "" if at else "answer")))
                  for at, panel in enumerate(panels)]
    where = words(answer.get("point", {}), short_keys(answer.get("point", {})))
    kept = [row for row in rows if row["verdict"].startswith("pass")]
    says = (f"{len(kept)} of {plural(len(rows), 'value')} keep every bound; error bars are intervals over seeds."
            + (" Some scales are logarithmic." if any(panel.is_log for panel in panels) else ""))
    return Chart(f"bounds_{number}", f"Goodput and every bound{f': {where}' if where else ''}", says, answer["vary"],
                 tuple(panels) or (Panel("", ()),),
                 table_of((answer["vary"], *labels, "verdict"), x, *columns, [row["verdict"] for row in rows]),
                 is_x_log=bool(len(x)) and is_wide(x.tolist()))


def _errors(x: np.ndarray, values: np.ndarray, half: np.ndarray, style: int) -> Errors:
    known = ~np.isnan(values)
    return Errors("", x[known], values[known], (values - half)[known], (values + half)[known], style)


def _column(rows: list[dict[str, Any]], key: str) -> np.ndarray:
    return np.array([math.nan if row.get(key) is None else row[key] for row in rows], float)


def _by_axis(answers: list[dict[str, Any]]) -> list[Chart]:
    """Return the answers of all points, side by side."""
    found = [each for each in answers if each["answer"] is not None]
    if len(answers) < 2 or not found:
        return []
    short = short_keys(dict.fromkeys(key for each in answers for key in each["point"]))
    names = tuple(shortened(words(each["point"], short)) for each in found)
    ends = [each["interval"] or (math.nan, math.nan) for each in found]
    says = (f"{len(found)} of {len(answers)} points have an answer; intervals over seeds."
            f" The largest is {figure(max(each['answer'] for each in found))}.")
    table = table_of(("point", answers[0]["vary"]), [words(each["point"], short) for each in found],
                     [_value(each) for each in found])
    charts = [Chart("answers", "Answers by point", says, answers[0]["vary"],
                    (Panel("", (Intervals(names, tuple(each["answer"] for each in found), tuple(e[0] for e in ends),
                                          tuple(e[1] for e in ends), (0,) * len(found)),)),), table)]
    if len(short) == 1 and is_numeric([next(iter(each["point"].values())) for each in found]):
        (key,) = short
        x, y = (np.array(values, float) for values in ([each["point"][key] for each in found],
                                                       [each["answer"] for each in found]))
        order = np.argsort(x, kind="stable")
        mark = Errors("", x[order], y[order], *(np.array([e[side] for e in ends])[order] for side in (0, 1)))
        charts.append(Chart("answers_curve", f"Answer against {short[key]}", says, key,
                            (panel_of(shortened(answers[0]["vary"], 28), (mark,)),), table,
                            is_x_log=is_wide(x.tolist())))
    return charts


def _provenance(directory: Path, asked: dict[str, Any], ends: list) -> Section:
    ids = sorted(end.id for end in ends)
    seeds = sorted({end.seed for end in ends})
    return Section("Provenance", (), (
        ("study", "capacity search"),
        ("seeds", f"{seeds[0]} to {seeds[-1]}, {len(seeds)} of them" if seeds else "-"),
        ("runs", f"{len(ids):,}, ids {ids[0]} to {ids[-1]}; all in the segments" if ids else "0"),
        *origin_of(directory)))
