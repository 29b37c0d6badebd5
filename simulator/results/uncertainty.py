"""Intervals of metrics over replications, and the operators with the largest share of the error.

An interval holds the given share of the replications. Of the variance, each operator has the square of its error times
its time, in a sum over all: to first order, of the time of all iterations, errors being independent (the delta method).
"""
from functools import reduce
from operator import getitem
from typing import Any, NamedTuple

import numpy as np

METRICS = (*(f"{metric}.{statistic}" for metric in ("ttft_ms", "tpot_ms", "e2el_ms") for statistic in ("mean", "p99")),
           "request_throughput", "output_throughput", "duration_s")


WIDENED = ("uncertainty: intervals of TTFT and TPOT are those of means of deployments left out, host time and unknown "
           "options included; those of E2EL, throughput and duration hold errors of operators alone")


class TableFacts(NamedTuple):
    """A table that was looked up.

    measured : axis -> least and greatest value.
    """

    table: str
    file: str
    version: str
    sha256: str
    measured: dict[str, list[float]]


class Operator(NamedTuple):
    """An operator of a deployment.

    ns, beyond_ns : its time in all iterations, and the part of it beyond measured points.
    error : latency.uncertainty.spread.OperatorError.
    """

    pool: str
    name: str
    ns: float
    beyond_ns: float
    error: Any
    tables: tuple[TableFacts, ...]

    @property
    def deviation_ns(self) -> float | None:
        """The error of its time; None: not known."""
        inside, beyond = self.error.inside or self.error.outside, self.error.beyond
        if inside is None:
            return None
        return (self.ns - self.beyond_ns) * inside.error_frac + self.beyond_ns * beyond.error_frac

    @property
    def how(self) -> str:
        """The data by which the error was measured."""
        spreads = [] if self.beyond_ns == self.ns else [self.error.inside]
        spreads += [self.error.beyond] if self.beyond_ns else []
        return "; ".join(dict.fromkeys(each.how for each in spreads if each)) or "not known"


class Section(NamedTuple):
    """The part of the summary, and remarks on it, a sentence each."""

    part: dict
    notes: list[str]


def value_of(summary: dict, metric: str) -> float | None:
    """Return a metric by its dotted name."""
    return reduce(getitem, metric.split("."), summary)


def section(nominal: dict[str, float | None], replicated: list[dict[str, float | None]], interval: float,
            operators: list[Operator], left_out: dict[str, tuple[float, float]] | None = None) -> Section:
    """Return the intervals, and the operators, the largest share first.

    Parameters
    ----------
    nominal, replicated : metrics of the run, and of each replication.
    interval : share of the replications within.
    left_out : ttft_ms or tpot_ms -> factors from the run to the ends of the interval by deployments left out, which
        widen the interval of the replications; None: not known.
    """
    left_out = left_out or {}
    taking = [each for each in operators if each.ns > 0.0]
    whole_ns = sum(each.ns for each in taking)
    variance = sum((each.deviation_ns or 0.0) ** 2 for each in taking)
    rows = sorted((_row(each, whole_ns, variance) for each in taking),
                  key=lambda row: (-(row["share_of_variance"] or 0.0), -row["share_of_time"]))
    dominant = {"pool": rows[0]["pool"], "name": rows[0]["name"]} if variance else None
    part = {"interval_frac": interval, "replications": len(replicated),
            "metrics": {metric: _widened(_interval(metric, nominal, replicated, interval), left_out.get(
                metric.partition(".")[0])) for metric in METRICS},
            "dominant": dominant, "operators": rows}
    return Section(part, _notes(rows) + [WIDENED] * bool(left_out))


def _interval(metric: str, nominal: dict, replicated: list[dict], interval: float) -> dict[str, float | None]:
    values = [each[metric] for each in replicated if each[metric] is not None]
    if not values:
        return {"low": None, "high": None, "nominal": nominal[metric]}
    low, high = np.quantile(values, (0.5 - interval / 2, 0.5 + interval / 2))
    return {"low": float(low), "high": float(high), "nominal": nominal[metric]}


def _widened(found: dict[str, float | None], factors: tuple[float, float] | None) -> dict[str, float | None]:
    """Return an interval that also holds the nominal value times both factors."""
    if factors is None or found["low"] is None or found["nominal"] is None:
        return found
    ends = [factor * found["nominal"] for factor in factors]
    return found | {"low": min(found["low"], ends[0]), "high": max(found["high"], ends[1])}


def _row(operator: Operator, whole_ns: float, variance: float) -> dict:
    deviation_ns = operator.deviation_ns
    return {
        "pool": operator.pool, "name": operator.name,
        "error_frac": None if deviation_ns is None else deviation_ns / operator.ns,
        "error_of": operator.how,
        "share_of_time": operator.ns / whole_ns,
        "share_of_variance": None if deviation_ns is None else deviation_ns ** 2 / variance if variance else 0.0,
        "outside_share": operator.beyond_ns / operator.ns,
        "tables": [{"table": fact.table, "file": fact.file, "version": fact.version, "sha256": fact.sha256,
                    "measured_range": fact.measured} for fact in operator.tables]}


def _notes(rows: list[dict]) -> list[str]:
    unknown = [row for row in rows if row["error_frac"] is None]
    if not unknown:
        return []
    share, names = sum(row["share_of_time"] for row in unknown), dict.fromkeys(row["name"] for row in unknown)
    return [f"uncertainty: nobody knows how far {', '.join(names)} may be off, {share:.1%} of the time of iterations: "
            f"not varied"]


def sentence(off: dict) -> str:
    """Return the intervals of means, and the operator with most of the error."""
    metrics, found = off["metrics"], []
    for label, metric, unit in (("TTFT ", "ttft_ms.mean", "ms"), ("TPOT ", "tpot_ms.mean", "ms"),
                                ("E2EL ", "e2el_ms.mean", "ms"), ("", "request_throughput", "requests/s")):
        low, high = metrics[metric]["low"], metrics[metric]["high"]
        found += [] if low is None else [f"{label}{low:,.2f} to {high:,.2f} {unit}"]
    most = f"; most of it from {off['dominant']['name']}" if off["dominant"] else ""
    return f"{off['interval_frac']:.0%} within {', '.join(found)}{most}"
