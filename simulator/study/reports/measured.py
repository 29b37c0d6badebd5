"""Requests of a calibration, predicted against measured: scatter, quantiles against quantiles, distributions."""
import csv
import math
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simulator.errors import InputErrors
from simulator.results.figures.chart import Chart, Line, Panel, Points, number, plural, table_of

MS_PER_S = 1000.0
MOST_POINTS = 2000              # of a scatter; with more, every n-th by the measured value
SHARES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
LABELS = {"ttft": "TTFT", "tpot": "TPOT", "e2el": "E2EL"}
SIDES = (("held out", True, 0), ("training", False, 1))


class Pairs(NamedTuple):
    """One latency of requests with both times, ms: float64 (n,)."""

    measured: np.ndarray
    simulated: np.ndarray
    keys: tuple[tuple[str, str], ...]       # data set and request


class Measured:
    """The requests of pairs.csv.

    Raises
    ------
    InputErrors
        It cannot be read.
    """

    def __init__(self, path: Path):
        try:
            with open(path, encoding="utf-8", newline="") as stream:
                self.rows = list(csv.DictReader(stream))
        except (OSError, ValueError) as error:
            raise InputErrors([f"{path}: cannot be read: {error}"]) from error
        needed = {"data_set", "held_out", "request_id", *(f"{side}_{name}_s" for name in LABELS
                                                         for side in ("measured", "simulated"))}
        if self.rows and (missing := sorted(needed - self.rows[0].keys())):
            raise InputErrors([f"{path}: there is no column {missing[0]}"])

    @cached_property
    def is_held(self) -> np.ndarray:
        """Mask of held-out requests."""
        return np.array([row["held_out"] == "true" for row in self.rows], bool)

    def pairs(self, name: str, is_held: bool) -> Pairs:
        """Return a latency of the held-out requests, or of all others."""
        columns = [np.array([float(row[f"{side}_{name}_s"] or math.nan) for row in self.rows], float) * MS_PER_S
                   for side in ("measured", "simulated")]
        chosen = (self.is_held == is_held) & ~np.isnan(columns[0]) & ~np.isnan(columns[1])
        keys = tuple((self.rows[row]["data_set"], self.rows[row]["request_id"]) for row in np.flatnonzero(chosen))
        return Pairs(columns[0][chosen], columns[1][chosen], keys)


def request_charts(measured: Measured) -> list[Chart]:
    """Return the charts of each latency that any request has."""
    charts = []
    for name, label in LABELS.items():
        sides = [(title, measured.pairs(name, is_held), style) for title, is_held, style in SIDES]
        sides = [each for each in sides if len(each[1].measured)]
        if sides:
            charts += [_scatter(name, label, sides), _quantiles(name, label, sides), _distributions(name, label, sides)]
    return charts


def _ends(sides: list[tuple[str, Pairs, int]]) -> tuple[float, float]:
    """Return an axis that holds all measured and predicted values."""
    high = max(float(max(pairs.measured.max(), pairs.simulated.max())) for _, pairs, _ in sides)
    return 0.0, 1.03 * high or 1.0


def _equal(ends: tuple[float, float]) -> Line:
    return Line("equal", np.array(ends), np.array(ends), 5)


def _scatter(name: str, label: str, sides: list[tuple[str, Pairs, int]]) -> Chart:
    ends, marks, sentences, rows = _ends(sides), [], [], []
    for title, pairs, style in reversed(sides):
        order = np.argsort(pairs.measured, kind="stable")
        if len(order) > MOST_POINTS:
            order = order[np.linspace(0, len(order) - 1, MOST_POINTS).astype(np.int64)]
        marks.append(Points(title, pairs.measured[order], pairs.simulated[order], style, 4))
    for title, pairs, _ in sides:
        within = float(np.mean(np.abs(pairs.simulated - pairs.measured) <= 0.2 * pairs.measured))
        sentences.append(f"{title}: {within:.0%} of {plural(len(pairs.measured), 'request')} are predicted within 20 %")
        at = np.percentile(pairs.simulated - pairs.measured, SHARES)
        rows += [(title, f"{share} %", number(float(value)) if value >= 0 else f"-{number(-float(value))}")
                 for share, value in zip(SHARES, at, strict=True)]
    if any(len(pairs.measured) > MOST_POINTS for _, pairs, _ in sides):
        sentences.append(f"{MOST_POINTS:,} of each are drawn, evenly by what was measured")
    return Chart(f"scatter_{name}", f"{label}: predicted against measured", "; ".join(sentences) + ".", "measured, ms",
                 (Panel("predicted, ms", (*marks, _equal(ends)), ends),),
                 table_of(("", "of requests", "predicted less measured, at most, ms"), *zip(*rows, strict=True)), ends)


def _quantiles(name: str, label: str, sides: list[tuple[str, Pairs, int]]) -> Chart:
    """Return predicted quantiles against measured ones."""
    ends, marks, rows, sentences = _ends(sides), [], [], []
    for title, pairs, style in sides:
        shares = np.linspace(0, 100, 101)
        real, sim = (np.percentile(values, shares) for values in (pairs.measured, pairs.simulated))
        marks.append(Points(title, real, sim, style, 5))
        rows += [(title, f"p{share}", number(float(real[share])), number(float(sim[share]))) for share in SHARES]
        sentences.append(f"{title}: p50 {number(float(real[50]))} measured and {number(float(sim[50]))} ms predicted, "
                         f"p99 {number(float(real[99]))} and {number(float(sim[99]))} ms")
    says = "; ".join(sentences) + ". On the line both distributions are the same."
    return Chart(f"quantiles_{name}", f"{label}: quantiles against quantiles", says, "measured, ms",
                 (Panel("predicted, ms", (*marks, _equal(ends)), ends),),
                 table_of(("", "quantile", "measured, ms", "predicted, ms"), *zip(*rows, strict=True)), ends)


def _distributions(name: str, label: str, sides: list[tuple[str, Pairs, int]]) -> Chart:
    """Return the distribution functions of both, of held-out requests, or of all if none is held out."""
    title, pairs, _ = sides[0]
    shares = np.linspace(0, 100, min(1001, max(2, len(pairs.measured))))
    marks = [Line(word, np.percentile(values, shares), shares, style) for style, (word, values) in
             enumerate((("measured", pairs.measured), ("predicted", pairs.simulated)))]
    high = 1.02 * max(float(np.percentile(values, 99)) * 1.5 for values in (pairs.measured, pairs.simulated)) or 1.0
    end = min(high, _ends(sides[:1])[1])
    gap = np.abs(np.searchsorted(np.sort(pairs.simulated), pairs.measured, "right") / len(pairs.simulated)
                 - np.searchsorted(np.sort(pairs.measured), pairs.measured, "right") / len(pairs.measured))
    says = (f"Of {plural(len(pairs.measured), 'request')} ({title}). At what was measured, the shares are at most "
            f"{float(gap.max()):.1%} apart.")
    at = np.array(SHARES)
    return Chart(f"distribution_{name}", f"{label}: distributions of both", says, f"{label}, ms",
                 (Panel("% at most so long", tuple(marks), (0, 102)),),
                 table_of(("%", "measured, ms", "predicted, ms"), at, *(np.percentile(values, at) for values in
                                                                       (pairs.measured, pairs.simulated))), (0, end))
