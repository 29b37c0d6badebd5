"""Answers of several runs: goodput against the load; intervals of the predictions."""
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from simulator.assembly.latency import Readings
from simulator.config.experiment import Experiment
from simulator.config.load import plain, resolve
from simulator.errors import InputErrors, faults_of
from simulator.results.figures.chart import Chart, Errors, Level, Line, Panel, number, table_of
from simulator.results.report import notes
from simulator.study.capacity.varied import RATE, RATE_SCALE, TIME_SCALE, Varied, value_at
from simulator.study.exploring.answering import Source, content_of, result_of
from simulator.study.reports.curves import panel_of
from simulator.study.sweep.study_file import laid_over

MOST_DOUBLINGS = 7              # of loads
BETWEEN = (0.25, 0.5, 0.75)     # of the way from the last load that is held to the next
SEEDS = 3
MOST_REQUESTS = 2000            # of a run of the curve
KEPT = 0.99                     # share of requests within the SLO, for a load that is held
REPLICATIONS = 8                # for intervals
OPERATORS = 8                   # with the largest share of the error, that are shown

Stop = Callable[[], bool]


def intervals_of(source: Source, readings: Readings, stop: Stop) -> dict[str, Any]:
    """Return the intervals of a run's numbers over the errors of its latency model.

    Raises
    ------
    InputErrors
        The latency backend has no errors to draw from.
    Superseded
        `stop` returned True.
    """
    given = {"latency.uncertainty": True, "latency.uncertainty_replications": REPLICATIONS}
    with faults_of(source.file):
        experiment = resolve(laid_over(source.layers(), given, source.file))
        summary = result_of(experiment, readings, stop, iterations=False).summary
    found = summary.get("uncertainty") or {"metrics": {}, "operators": []}
    operators = [{"name": each["name"], "error": each["error_frac"], "of": each["error_of"],
                  "time": each["share_of_time"], "outside": each["outside_share"]}
                 for each in found["operators"][:OPERATORS]]
    return {"metrics": found["metrics"], "frac": found.get("interval_frac"), "operators": operators,
            "notes": notes(summary)}


def curve_of(source: Source, readings: Readings, stop: Stop) -> dict[str, Any]:
    """Return goodput and TTFT against the load, over a few seeds.

    Raises
    ------
    InputErrors
        The workload has no rate.
    Superseded
        `stop` returned True.
    """
    layers, base = source.layers(), source.experiment()
    varied = _varied(source, base)
    own = value_at(plain(base), "workload.num_requests")
    same: dict[str, Any] = {"workload.num_requests": MOST_REQUESTS} if own is not None and own > MOST_REQUESTS else {}
    same |= {"latency.uncertainty": False} if base.latency.uncertainty else {}

    def measure(load: float) -> list[dict[str, Any]]:
        rows = [same | varied.assignment(load) | {"seed": base.seed + more} for more in range(SEEDS)]
        return [result_of(resolve(laid_over(layers, row, source.file)), readings, stop, iterations=False).summary
                for row in rows]

    with faults_of(source.file):
        found = measured_around(1.0 if varied.key == RATE_SCALE else varied.now, measure)
    return {"chart": content_of(curve_chart(base, list(found.values())))}


def measured_around(now: float, measure: Callable[[float], list[dict[str, Any]]]) -> dict[float, list[dict[str, Any]]]:
    """Return runs by load, rising: from loads that are held to those that are not.

    Loads are doubled, or halved, from half of `now`; between the last that is held and the next are some more.
    """
    found = {now / 2: measure(now / 2)}
    while share_of(found[max(found)]) >= KEPT / 2 and len(found) < MOST_DOUBLINGS:
        found[2 * max(found)] = measure(2 * max(found))
    while share_of(found[min(found)]) < KEPT and len(found) < MOST_DOUBLINGS:
        found[min(found) / 2] = measure(min(found) / 2)
    held = [load for load, runs in found.items() if share_of(runs) >= KEPT]
    if held and (above := [load for load in found if load > max(held)]):
        low, high = max(held), min(above)
        found |= {load: measure(load) for load in (low + (high - low) * part for part in BETWEEN)}
    return dict(sorted(found.items()))


def share_of(runs: Sequence[Mapping[str, Any]]) -> float:
    """Return the least share of good answers; without [slo], of served requests."""
    return min(run["slo_attainment"] if run["slo_attainment"] is not None else
               run["request_throughput"] / (run["offered_throughput"] or np.inf) for run in runs)


def _varied(source: Source, base: Experiment) -> Varied:
    key = RATE_SCALE if base.workload.type == "trace" else RATE
    now = value_at(plain(base), TIME_SCALE if key == RATE_SCALE else key)
    if now is None:
        raise InputErrors([f"{source.file}: workload: no curve against the load: neither arrival.rate_per_s nor a "
                           "trace sets a rate"])
    return Varied(key, None, now)


def curve_chart(base: Experiment, found: Sequence[Sequence[Mapping[str, Any]]]) -> Chart:
    """Return the chart of a curve.

    Parameters
    ----------
    found : summaries of the runs of each load, loads rising.
    """
    slo = {} if base.slo is None else plain(base.slo)
    has_goodput = found[0][0]["request_goodput"] is not None
    key = "request_goodput" if has_goodput else "request_throughput"
    x = np.array([_mean([run["offered_throughput"] for run in runs]) for runs in found])
    served = _errors(x, [[run[key] for run in runs] for runs in found], "goodput" if has_goodput else "throughput")
    tail = _errors(x, [[run["ttft_ms"]["p99"] for run in runs] for runs in found], "", 1)
    levels = [Level(slo["ttft_ms"], f"SLO {number(slo['ttft_ms'])} ms")] if slo.get("ttft_ms") else []
    panels = (Panel("requests/s", (served, Line("offered", np.array([0.0, x[-1]]), np.array([0.0, x[-1]]), 5))),
              panel_of("TTFT p99, ms", [tail, *levels]))
    word = "within the SLO" if has_goodput else "served"
    table = table_of(("offered, requests/s", f"{word}, requests/s", "least", "most", "TTFT p99, ms"), x, served.y,
                     served.low, served.high, tail.y)
    return Chart("curve", f"{'Goodput' if has_goodput else 'Throughput'} against the load",
                 _says(x, found, has_goodput), "offered, requests/s", panels, table, (0.0, 1.03 * float(x[-1])))


def _says(x: np.ndarray, found: Sequence[Sequence[Mapping[str, Any]]], has_goodput: bool) -> str:
    """Return the sentence on the largest load that is held."""
    sizes = sorted({run["requests"]["injected"] for runs in found for run in runs})
    drawn = f"Each point: {SEEDS} seeds with {number(sizes[0])} requests" + (
        f" to {number(sizes[-1])}" if sizes[-1] > sizes[0] else "") + "; bars from the least to the most."
    if not has_goodput:
        return f"Without an SLO all answers count. {drawn}"
    held = [load for load, runs in zip(x, found, strict=True) if share_of(runs) >= KEPT]
    if not held:
        return f"No load that was tried keeps {KEPT:.0%} of the requests within the SLO. {drawn}"
    more = ", the largest that was tried" if held[-1] == x[-1] else ""
    return f"{number(float(held[-1]))} requests/s keep {KEPT:.0%} of the requests within the SLO{more}. {drawn}"


def _errors(x: np.ndarray, values: Sequence[Sequence[float | None]], label: str, style: int = 0) -> Errors:
    known = [[np.nan if each is None else each for each in row] for row in values]
    rows = np.array(known, np.float64)
    return Errors(label, x, rows.mean(axis=1), rows.min(axis=1), rows.max(axis=1), style)


def _mean(values: Sequence[float | None]) -> float:
    known = [each for each in values if each is not None]
    return sum(known) / len(known) if known else 0.0
