"""The report of a calibration: predicted against measured, grades, and intervals of the fitted values."""
import math
from pathlib import Path
from typing import Any

from simulator.results.figures.chart import Chart, Intervals, Panel, plural, table_of
from simulator.study.reports.calibrations import against_charts, against_tables
from simulator.study.reports.kinds import json_of, origin_of
from simulator.study.reports.measured import Measured, request_charts
from simulator.study.reports.page import Page, Section, section, shortened
from simulator.study.reports.texts import figure, plain, short_keys
from simulator.study.sweep.names import CALIBRATED, CALIBRATION, EVALUATIONS, PAIRS

METRICS = {"step": "iteration", "ttft": "TTFT", "tpot": "TPOT", "e2el": "E2EL"}
SIDES = {"held_out": "held out", "training": "training"}
LEVELS = ("mean", "p50", "p90", "p95", "p99")
STEPS, POOR = "steps", "poor"


def calibration_page(directory: Path, against: Path | None) -> Page:
    """Return the report of a calibration.

    against : one to compare it with; None: none.

    Raises
    ------
    InputErrors
        Files are missing, or damaged.
    """
    content = json_of(directory / CALIBRATION)
    if not content:
        count = max(0, (directory / EVALUATIONS).read_bytes().count(b"\n") - 1)         # the first says the question
        return Page(directory.name, f"Incomplete: the fit has not come to an end; {plural(count, 'evaluation')} so "
                                    "far.", "Run it again to go on.", False, (), (), (), ())
    measured = Measured(directory / PAIRS)
    other = None if against is None else json_of(against / CALIBRATION)
    before = [*_coefficients(content), _grades(content)]
    charts = request_charts(measured)
    if other is not None and against is not None:
        theirs = Measured(against / PAIRS)
        before += against_tables(content, other, measured, theirs)
        charts += against_charts(content, other, measured, theirs)
    charts += [*_errors(content), *_sureness(content)]
    notes = Section("Notes", (), tuple(("note", note) for note in content["notes"]),
                    "" if content["notes"] else "None.")
    after = (_levels(content), _counts(content), notes, _provenance(directory, content))
    path = directory / CALIBRATED
    files = (("Calibrated experiment", path.read_text(encoding="utf-8")),) if path.is_file() else ()
    absent = () if measured.rows else (f"No request has a prediction in {PAIRS}: charts of requests are left out.",)
    return Page(content["name"], _verdict(content), _more(content), _is_good(content), tuple(before),
                tuple(charts), after, absent, files)


def _verdict(content: dict[str, Any]) -> str:
    """Return the held-out error, that of training, and whether the fit transfers."""
    training, held = content["training"], content["held_out"]
    what = "iterations" if content["level"] == STEPS and training["step"] else "requests"
    fitted = bool(content["coefficients"])
    if held is None or held["mape"] is None:
        side = f"MAPE of {what} {'that were fitted to ' * fitted}{share(training['mape'])}"
        return f"Nothing was held out: {side}; how it predicts others is not known."
    word = {True: "transfers", False: "does not transfer", None: "whether it transfers is not known"}
    state = f"; {word[content['transfers']]}" if fitted else ""
    return (f"Held out: MAPE of {what} {share(held['mape'])}, median {share(held['median_ape'])}; "
            f"{'training' if fitted else 'the others'}: {share(training['mape'])}{state}.")


def _is_good(content: dict[str, Any]) -> bool:
    """Return whether the fit transfers and no held-out grade is poor."""
    held = content["held_out"] or {}
    return content["transfers"] is True and all(
        held[name]["request_level"]["quality"] != POOR for name in METRICS if held.get(name))


def _more(content: dict[str, Any]) -> str:
    """Return how many values are identified, and the grades in a word each."""
    keys = content["coefficients"]
    vague = [key for key, each in keys.items() if not each["identified"]]
    found = content["held_out"] or content["training"]
    words = [f"{METRICS[name]} {found[name]['request_level']['quality']}" for name in METRICS
             if found.get(name) and found[name]["request_level"]["quality"]]
    doubt = (f"{len(vague)} of {plural(len(keys), 'fitted value')} "
             f"{'is' if len(vague) == 1 else 'are'} not identified. " if vague else
             "Every fitted value is identified. " if keys else "Nothing was fitted. ")
    return f"{doubt}{'Held out' if content['held_out'] else 'Training'}: {', '.join(words)}."


def share(value: float | None, sign: str = "") -> str:
    """Return a share in percent."""
    return "-" if value is None else f"{value:{sign}.1%}"


def _coefficients(content: dict[str, Any]) -> list[Section]:
    if not content["coefficients"]:
        return [Section("Fitted values", (), (), "Nothing was fitted: the experiment is compared as it is.")]
    rows = [(key, plain(float(each["value"])), plain(float(each["low"])), plain(float(each["high"])),
             "yes" if each["identified"] else "no", each["level"]) for key, each in content["coefficients"].items()]
    vague = tuple((key, each["reason"]) for key, each in content["coefficients"].items() if not each["identified"])
    found = [section("Fitted values", ("key", "value", "95 % from", "to", "identified", "told by"), rows,
                     "Intervals by a moving-block bootstrap.")]
    says = ("Such a value may be anything in its interval: predictions at loads unlike those measured are not to be "
            "trusted.")
    return [*found, Section("Not identified", (), vague, says)] if vague else found


def _all_grades(content: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the grades, held-out data first: side, metric and grade."""
    return [(SIDES[side], name, content[side][name]) for side in SIDES if content[side] is not None
            for name in METRICS if content[side].get(name) is not None]


def _grades(content: dict[str, Any]) -> Section:
    rows = []
    for side, name, found in _all_grades(content):
        pairs, within = found["request_level"], found["within_noise"]
        covered = [key for key, is_within in (within or {}).items() if is_within]
        rows.append((f"{METRICS[name]}, {side}", f"{found['n']:,}", pairs["quality"] or "-", share(pairs["mape"]),
                     share(pairs["median_ape"]), share(pairs["bias"], "+"), pairs["bias_direction"] or "-",
                     figure(pairs["pearson_r"]) if pairs["pearson_r"] is None else f"{pairs['pearson_r']:.4f}",
                     figure(found["ks"]), figure(found["wasserstein_over_mean"]),
                     "-" if within is None else f"{len(covered)} of {len(within)}", f"{pairs['measured_zero']:,}"))
    return section("Grades", ("", "n", "quality", "MAPE", "median APE", "bias", "direction", "r", "KS", "W/mean",
                              "within noise", "measured as 0"), rows,
                   "Of what was held out first: nothing was fitted to it. Quality by BLIS: excellent MAPE < 10 % and "
                   "r > 0.95, good < 20 % and > 0.85, fair < 35 % and > 0.70, else poor. Within noise: the error is at "
                   "most that between odd and even blocks of what was measured.")


def _levels(content: dict[str, Any]) -> Section:
    """Return mean and percentiles of both sides, with the noise of the measurements."""
    rows = []
    for side, name, found in _all_grades(content):
        floor, within = found["noise_floor"] or {}, found["within_noise"] or {}
        for level in LEVELS:
            each = found["workload_level"][level]
            rows.append((f"{METRICS[name]} {level}, {side}", figure(each["real"]), figure(each["sim"]),
                         figure(each["error"]), "-" if each["percent"] is None else f"{each['percent']:+.1f}%",
                         share(floor.get(level)), {True: "yes", False: "no", None: "-"}[within.get(level)]))
    return section("Whole workloads", ("", "measured, ms", "predicted, ms", "error, ms", "%", "noise", "within"), rows)


def _errors(content: dict[str, Any]) -> list[Chart]:
    """Return the errors of means and percentiles against the noise of the measurements."""
    charts = []
    for side, title in SIDES.items():
        found = [(name, each) for where, name, each in _all_grades(content) if where == title]
        names, values, floors = [], [], []
        for name, each in found:
            for level in LEVELS:
                percent = each["workload_level"][level]["percent"]
                if percent is not None:
                    floor = (each["noise_floor"] or {}).get(level)
                    names.append(f"{METRICS[name]} {level}")
                    values.append(percent)
                    floors.append(math.nan if floor is None else 100 * floor)
        if not names:
            continue
        beyond = sum(abs(value) > floor for value, floor in zip(values, floors, strict=True))
        says = (f"Points are errors, lines the noise of what was measured, between its odd and even blocks: {beyond} "
                f"of {len(names)} errors lie beyond it.")
        mark = Intervals(tuple(names), tuple(values), tuple(-each for each in floors), tuple(floors), (0,) * len(names))
        charts.append(Chart(f"errors_{side}", f"Errors of whole workloads, {title}", says, "predicted - measured, %",
                            (Panel("", (mark,)),), table_of(("", "error, %", "noise, %"), names, values, floors)))
    return charts


def _sureness(content: dict[str, Any]) -> list[Chart]:
    """Return the intervals of fitted values, relative to the values."""
    keys = content["coefficients"]
    short = short_keys(keys)
    known = {key: each for key, each in keys.items() if each["value"]}
    if not known:
        return []
    names = tuple(shortened(short[key]) for key in known)
    scaled = [[100 * (each[end] / each["value"]) for end in ("value", "low", "high")] for each in known.values()]
    mark = Intervals(names, *(tuple(row[place] for row in scaled) for place in range(3)),
                     tuple(2 if each["identified"] else 1 for each in known.values()))
    zeros = [short[key] for key in keys if key not in known]
    says = "Intervals in percent of the value; squares are identified, triangles are not." + (
        f" {', '.join(zeros)}: fitted as 0, in the table alone." if zeros else "")
    return [Chart("coefficients", "How sure the fitted values are", says, "% of the value", (Panel("", (mark,)),),
                  table_of(("key", "value", "low", "high"), list(known), *(
                      [plain(float(each[end])) for each in known.values()] for end in ("value", "low", "high"))))]


def _counts(content: dict[str, Any]) -> Section:
    """Return the outcomes of the measured requests: none is left out silently."""
    rows = [(title, *(f"{count:,}" for count in content[side]["counts"].values()))
            for side, title in SIDES.items() if content[side] is not None]
    names = next(content[side]["counts"] for side in SIDES if content[side] is not None)
    return section("Requests", ("", *(name.replace("_", " ") for name in names)), rows,
                   "More than 5 % that do not match are an error of the command.")


def _provenance(directory: Path, content: dict[str, Any]) -> Section:
    def size(each: dict[str, Any]) -> str:
        parts = [f"{each[what]:,} {what}" for what in ("requests", "steps") if each[what] is not None]
        use = "held out" if each["held_out"] else "fitted to, but for blocks held out" if in_blocks else "fitted to"
        return f"{', '.join(parts)}; {use}"

    in_blocks = content["held_out"] is not None and not any(each["held_out"] for each in content["data_sets"])
    sets = [(f"data set {each['name']}", size(each)) for each in content["data_sets"]]
    return Section("Provenance", (), (("study", f"calibration, level {content['level']}"),
                                      ("question", content["question"]), *sets, *origin_of(directory)))
