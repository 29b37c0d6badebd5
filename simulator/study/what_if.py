"""Changes of a reconstructed experiment, run on every draw, with intervals."""
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import tomli_w

from simulator.config.layers import read_toml
from simulator.errors import InputErrors, did_you_mean
from simulator.study.compare import METRICS, Order, measure_one, prepare
from simulator.study.compare_file import read_comparison
from simulator.study.reconstruct.explained import Row
from simulator.study.reconstruct.report import number_text
from simulator.study.statistics.student import t_quantile
from simulator.study.sweep.writing import write
from simulator.study.telling.screen import table_of

AS_IT_WAS = "as_it_was"         # the variant without a change
FILE = "what_if.toml"
COVERAGE = 0.9
LEAST = 0.01                    # widening of each interval, as a share: details of a window that no draw varies
EXACT = ("requests.completed",)
OVER_TIME = ("duration_s", "request_throughput", "request_goodput", "output_throughput")
MEASURED = {                    # first part of a metric's key -> the series with the error that widens its interval
    "ttft_ms": "TTFT mean, ms", "tpot_ms": "ITL mean, ms", "itl_ms": "ITL mean, ms", "e2el_ms": "E2EL mean, ms"}


class Interval(NamedTuple):
    """The median of a metric, and bounds that hold another draw 9 times of 10."""

    middle: float
    low: float
    high: float


def read_variants(file: str) -> list[dict[str, Any]]:
    """Return the variants of a file with tables [[variants]], as `compare` reads them.

    Raises
    ------
    InputErrors
        Another key than `variants` and `base`; no variant.
    """
    data = read_toml(file)
    faults = [f"{file}: {key}: unknown key{did_you_mean(key, ('variants',))}" for key in data
              if key not in ("variants", "base")]
    variants = data.get("variants")
    if not isinstance(variants, list) or not variants or not all(isinstance(each, dict) for each in variants):
        faults.append(f"{file}: variants: expected tables [[variants]], each with a name")
    if faults:
        raise InputErrors(faults)
    return [{"name": AS_IT_WAS}, *(each for each in variants if each.get("name") != AS_IT_WAS)]


def write_variants(variants: Sequence[dict[str, Any]], folder: Path, base: str, name: str = FILE) -> Path:
    """Write a comparison of variants of an experiment beside it; return the file."""
    write(folder / name, tomli_w.dumps({"base": base, "variants": list(variants)}))
    return folder / name


def errors_of(rows: Sequence[Row], edge: float) -> dict[str, float]:
    """Return the error of a replay, as a share, by the first part of a metric's key.

    rows : of the best replay. edge : distance of scrapes as a share of the whole time: begin and end are not known
        better.
    """
    known = {row.name: abs(row.simulated / row.measured - 1) for row in rows if row.measured > 0}
    return {key: known[name] for key, name in MEASURED.items() if name in known} | dict.fromkeys(OVER_TIME, edge)


def intervals(variants: Sequence[dict[str, Any]], folder: Path, bases: Sequence[str], errors: dict[str, float],
              show: Callable[[int, int], None] = lambda done, total: None) -> dict[str, dict[str, Interval]]:
    """Return variant -> key of summary.json -> interval.

    bases : experiment files of the draws in the folder. errors : as `errors_of` returns them.

    Raises
    ------
    InputErrors
        A variant has a fault.
    """
    values: dict[str, dict[str, list[float]]] = {}
    for i, base in enumerate(bases):
        file = write_variants(variants, folder, base)
        plan = prepare(read_comparison(file))
        if plan.unavailable:
            raise InputErrors([f"{name}: {why}" for name, why in plan.unavailable.items()])
        for name in plan.experiments:
            for key, value in measure_one(Order(plan, None, False, True), name).metrics.items():
                if value is not None:
                    values.setdefault(name, {}).setdefault(key, []).append(float(value))
        show(i + 1, len(bases))
    write_variants(variants, folder, bases[0])
    return {name: {
        key: interval_of(found, LEAST + errors.get(key.partition(".")[0], 0.0)) if key not in EXACT else
        interval_of(found) for key, found in metrics.items()} for name, metrics in values.items()}


def interval_of(values: Sequence[float], error: float = 0.0) -> Interval:
    """Return the interval in which one more draw is expected 9 times of 10.

    The prediction interval of normal values, mean +- t s sqrt(1 + 1/n), of logarithms if all are above 0. Source: Hahn
    and Meeker, Statistical Intervals, section 4.7.

    error : of the replay, by which the interval is widened on both sides, as a share of the value.
    """
    found = _drawn(values)
    below, above = found.low * (1 - error if found.low > 0 else 1 + error), found.high * (1 + error)
    return Interval(found.middle, below, above)


def _drawn(values: Sequence[float]) -> Interval:
    middle = sorted(values)[len(values) // 2]
    if len(values) < 2 or min(values) == max(values):
        return Interval(middle, min(values), max(values))
    is_positive = min(values) > 0
    found = [math.log(each) for each in values] if is_positive else list(values)
    half = t_quantile((1 + COVERAGE) / 2, len(found) - 1) * stdev(found) * math.sqrt(1 + 1 / len(found))
    bounds = (fmean(found) - half, fmean(found) + half)
    return Interval(middle, *(map(math.exp, bounds) if is_positive else bounds))


def intervals_text(found: dict[str, dict[str, Interval]]) -> str:
    """Return the metrics of each variant as a median with its interval."""
    rows = [["9 of 10 draws", *found]]
    for key, label in METRICS.items():
        cells = [_interval(metrics.get(key)) for metrics in found.values()]
        if any(cells):
            rows.append([label, *cells])
    return table_of(rows, left=(0,))


def json_of(found: dict[str, dict[str, Interval]]) -> dict[str, Any]:
    """Return the intervals as JSON types."""
    return {variant: {key: each._asdict() for key, each in metrics.items()} for variant, metrics in found.items()}


def _interval(found: Interval | None) -> str:
    if found is None:
        return ""
    return f"{number_text(found.middle)} ({number_text(found.low)} to {number_text(found.high)})"
