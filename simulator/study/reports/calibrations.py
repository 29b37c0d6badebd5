"""Two calibrations side by side: grades, fitted values, and errors of the same requests."""
import math
from typing import Any

import numpy as np

from simulator.results.figures.chart import Chart, Line, Panel, plural, table_of
from simulator.results.figures.decimate import quantiles
from simulator.study.reports.measured import LABELS, SIDES, Measured
from simulator.study.reports.page import Section, section
from simulator.study.reports.texts import difference, plain
from simulator.study.statistics.intervals import Estimate, of_replications

AT = (10, 25, 50, 75, 90, 99)


def other_name(content: dict[str, Any], other: dict[str, Any]) -> str:
    """Return the name of the calibration to compare with."""
    return other["name"] if other["name"] != content["name"] else f"{other['name']} (against)"


def errors_of(measured: Measured, name: str, is_held: bool) -> dict[tuple[str, str], float]:
    """Return the absolute relative error of each request, in percent.

    Requests measured as 0 have none.
    """
    pairs = measured.pairs(name, is_held)
    return {key: 100 * abs(sim - real) / real for key, real, sim in zip(
        pairs.keys, pairs.measured.tolist(), pairs.simulated.tolist(), strict=True) if real > 0}


def paired(own: dict, other: dict) -> tuple[Estimate, int]:
    """Return the mean difference of errors of the same requests, and their number."""
    both = [key for key in own if key in other]
    gaps = np.array([own[key] - other[key] for key in both])
    return (of_replications(gaps) if len(gaps) else Estimate(math.nan, math.nan)), len(both)


def against_tables(content: dict[str, Any], other: dict[str, Any], measured: Measured,
                   theirs: Measured) -> list[Section]:
    """Return the fitted values of both, and the differences of their errors."""
    name = other_name(content, other)
    keys = dict.fromkeys((*content["coefficients"], *other["coefficients"]))
    values = [(key, *(_value(each["coefficients"].get(key)) for each in (content, other))) for key in keys]
    rows = []
    for title, is_held, _ in SIDES:
        for metric, label in LABELS.items():
            own, others = (errors_of(each, metric, is_held) for each in (measured, theirs))
            found, count = paired(own, others)
            if count:
                rows.append((f"{label}, {title}", f"{np.mean(list(own.values())):.1f}%",
                             f"{np.mean(list(others.values())):.1f}%", f"{difference(found)}", f"{count:,}",
                             f"{len(own) - count:,} and {len(others) - count:,}"))
    says = (f"Absolute relative errors of {content['name']} less those of {name}, of the same requests of the same "
            "data sets; below 0 the first is better. Intervals take requests for independent, which those that were "
            "served together are not: they are too narrow. * the interval does not hold 0.")
    return [section(f"Against {name}: fitted values", ("key", content["name"], name), values),
            section(f"Against {name}: errors", ("", f"MAPE, {content['name']}", f"MAPE, {name}",
                                                "difference, points", "requests", "without a partner"), rows,
                    says if rows else "No request is one of both: nothing is paired.")]


def _value(found: dict[str, Any] | None) -> str:
    if found is None:
        return "not fitted"
    return (f"{plain(float(found['value']))} ({plain(float(found['low']))} to {plain(float(found['high']))})"
            + "" if found["identified"] else f"{plain(float(found['value']))}, not identified")


def against_charts(content: dict[str, Any], other: dict[str, Any], measured: Measured,
                   theirs: Measured) -> list[Chart]:
    """Return the distributions of errors of both.

    Of held-out data or, without any, of training.
    """
    charts = []
    for metric, label in LABELS.items():
        for title, is_held, _ in SIDES:
            samples = {name: np.array(list(errors_of(each, metric, is_held).values())) for name, each in (
                (content["name"], measured), (other_name(content, other), theirs))}
            if not all(len(values) for values in samples.values()):
                continue
            drawn = {name: quantiles(values) for name, values in samples.items()}
            marks = tuple(Line(name, values, shares * 100, style)
                          for style, (name, (values, shares)) in enumerate(drawn.items()))
            sentences = [f"{name}: half of {plural(len(values), 'request')} up to {np.median(values):.1f} %"
                         for name, values in samples.items()]
            end = 1.05 * max(float(np.percentile(values, 99)) for values in samples.values()) or 1.0
            at = np.array(AT)
            charts.append(Chart(f"against_{metric}", f"{label}: errors of both, {title}", "; ".join(sentences) + ".",
                                "absolute error, %", (Panel("% at most so much", marks, (0, 102)),),
                                table_of(("%", *drawn), at, *(np.interp(at / 100, shares, values)
                                                              for values, shares in drawn.values())), (0, end)))
            break
    return charts
