"""Numbers of a sweep against the load: goodput with every SLO, and GuideLLM's curves.

Source of the set: guidellm/benchmark/outputs/plot.py of vllm-project/guidellm@ee7a7745: latency and latency per token
against rate, throughput against concurrency and rate, latency against throughput, outcomes of requests, breakdown of
latency, efficiency.
"""
from collections.abc import Sequence

import numpy as np

from simulator.results.figures.chart import Chart, Errors, Level, Line, Panel, table_of
from simulator.results.figures.chart import number as shown
from simulator.study.reports.curves import (
    HOLLOW,
    MOST_VALUES,
    Curves,
    curves_of,
    drawn,
    numeric_axes,
    panel_of,
    table_of_curves,
)
from simulator.study.reports.runs import Runs, is_wide
from simulator.study.reports.texts import figure, label_of, plain, short_keys

RATES = ("rate_per_s", "rate_scale")
USERS = ("concurrency",)
KEPT = 0.99                     # share of the arrived requests: with fewer within [slo], it is missed
BOUNDS = ("ttft_ms", "tpot_ms", "e2el_ms", "itl_ms")
OUTCOMES = ("completed", "rejected", "dropped", "timed_out", "failed", "waiting", "running")
LOADS = (("latency", "Latency", ("ttft_ms.p50", "ttft_ms.p99", "e2el_ms.p50", "e2el_ms.p99")),
         ("per_token", "Latency per token", ("tpot_ms.p50", "tpot_ms.p99", "itl_ms.p50", "itl_ms.p99")),
         ("throughput", "Throughput and concurrency", ("request_throughput", "output_throughput", "in_system.mean")))
GOODPUT = "load_goodput"
NAMES = {"in_system.mean": "in the system"}


def load_axis(runs: Runs) -> str | None:
    """Return the axis of the load: a rate, else a number of users."""
    axes = [key for key in numeric_axes(runs) if len(set(runs.axis(key))) <= MOST_VALUES]
    found = [key for ends in (RATES, USERS) for key in axes if key.rpartition(".")[2] in ends]
    return found[0] if found else None


def load_charts(runs: Runs) -> list[Chart]:
    """Return the charts against the load; empty where it was not varied."""
    axis = load_axis(runs)
    if axis is None:
        return []
    curves = curves_of(runs, axis)
    slo = runs.asked.get("slo", {})
    charts = [_goodput(runs, curves, slo)] if any(slo.get(key) is not None for key in BOUNDS) else []
    charts += [_against(runs, curves, f"load_{name}", f"{title} against {_short(runs, curves)}", keys)
               for name, title, keys in LOADS]
    return [*charts, _latency_by_throughput(runs, curves), _breakdown(runs, curves), *_efficiency(runs, curves),
            _outcomes(runs, curves)]


def _short(runs: Runs, curves: Curves) -> str:
    return short_keys(runs.axes)[curves.axis]


def _panels(runs: Runs, curves: Curves, named: Sequence[tuple[str, np.ndarray]],
            levels: dict[str, Level] | None = None) -> tuple[tuple[Panel, ...], list[Errors]]:
    """Return a panel for each number, with the legend in the first one; and the marks of all panels."""
    panels, everything = [], []
    for label, values in named:
        marks = [drawn(runs, curve, curves.axis, values, style, "" if panels else None)
                 for style, curve in enumerate(curves.curves)]
        level = [levels[label]] if levels and label in levels else []
        panels.append(panel_of(label, [*marks, *level]))
        everything += [mark._replace(label=f"{label}" + (f", {curve.label}" if curve.label else ""))
                       for mark, curve in zip(marks, curves.curves, strict=True)]
    return tuple(panels), everything


def _chart(runs: Runs, curves: Curves, name: str, title: str, says: str,
           drawings: tuple[tuple[Panel, ...], list[Errors]]) -> Chart:
    panels, marks = drawings
    says += f" Means over {curves.over}." if curves.over else ""
    says += f" {HOLLOW}" if any(mark.hollow.any() for mark in marks) else ""
    says += " Some scales are logarithmic." if any(panel.is_log for panel in panels) else ""
    return Chart(name, title, says.strip(), curves.axis, panels, table_of_curves(_short(runs, curves), marks),
                 is_x_log=is_wide([float(each) for each in runs.axis(curves.axis)]))


def _against(runs: Runs, curves: Curves, name: str, title: str, keys: Sequence[str]) -> Chart:
    named = [(NAMES.get(key, label_of(key)), runs.values(key)) for key in keys]
    named = [(label, values) for label, values in named if not np.isnan(values).all()]
    panels, marks = _panels(runs, curves, named)
    sentences = [f"{label} from {figure(float(mark.y[0]))} to {figure(float(mark.y[-1]))}"
                 for label, mark in ((label, marks[row * len(curves.curves)]) for row, (label, _) in enumerate(named))
                 if len(mark.y)]
    first = f" ({curves.curves[0].label})" if curves.curves[0].label else ""
    says = f"From the least load to the greatest{first}: {'; '.join(sentences)}." if sentences else "No run is done."
    return _chart(runs, curves, name, title, says, (panels or (Panel("", ()),), marks))


def _goodput(runs: Runs, curves: Curves, slo: dict) -> Chart:
    """Return goodput and every bound of [slo] against the load."""
    good, served = runs.values("request_goodput"), runs.values("request_throughput")
    share = good * runs.values("duration_s") / np.maximum(runs.values("requests.injected"), 1)
    named = [("goodput, req/s", good), ("served, req/s", served), ("within SLO, %", share * 100)]
    levels = {"within SLO, %": Level(KEPT * 100, f"{KEPT:.0%}")}
    for key in BOUNDS:
        if (bound := slo.get(key)) is not None:
            label = label_of(f"{key}.p99")
            named.append((label, runs.values(f"{key}.p99")))
            levels[label] = Level(bound, f"SLO {shown(bound)} ms")
    panels, marks = _panels(runs, curves, named, levels)
    count, sentences, short = len(curves.curves), [], _short(runs, curves)
    for curve, mark in zip(curves.curves, marks[2 * count:3 * count], strict=True):
        kept = mark.x[mark.y >= KEPT * 100]
        lead = f"{curve.label}: " if curve.label else ""
        sentences.append(f"{lead}{KEPT:.0%} of the requests keep every SLO " + (
            f"up to {short} {plain(float(kept.max()))}" if len(kept) else f"at no {short}"))
    return _chart(runs, curves, GOODPUT, f"Goodput against {short}, with every SLO",
                  "; ".join(sentences) + ".", (panels, marks))


def _latency_by_throughput(runs: Runs, curves: Curves) -> Chart:
    """Return latencies against throughput: where a curve bends, more load gives nothing but waiting."""
    served, panels, rows = runs.values("output_throughput"), [], []
    for key in ("ttft_ms.p99", "tpot_ms.p99", "e2el_ms.p50"):
        marks = []
        for style, curve in enumerate(curves.curves):
            x, y = (drawn(runs, curve, curves.axis, values, style) for values in (served, runs.values(key)))
            both = np.intersect1d(x.x, y.x)
            at, values = x.y[np.isin(x.x, both)], y.y[np.isin(y.x, both)]
            nothing = np.full(len(both), np.nan)
            marks.append(Errors("" if panels else curve.label, at, values, nothing, nothing, style,
                                y.hollow[np.isin(y.x, both)]))
            rows += [(label_of(key), curve.label, plain(float(load)), figure(float(one)), figure(float(two)))
                     for load, one, two in zip(both, at, values, strict=True)]
        panels.append(panel_of(label_of(key), marks))
    says = (f"Along a curve {_short(runs, curves)} grows. Where it turns upwards, more load is no more served, only "
            "later.")
    table = table_of(("latency", "curve", _short(runs, curves), "output tokens/s", "ms"), *zip(*rows, strict=True))
    return Chart("load_latency_by_throughput", "Latency against throughput", says, "output tokens/s", tuple(panels),
                 table)


def _breakdown(runs: Runs, curves: Curves) -> Chart:
    """Return the phases of the mean time of a request, over all points of a load."""
    queue, first, last = (runs.values(key) for key in ("queue_ms.mean", "ttft_ms.mean", "e2el_ms.mean"))
    parts = (("queue", queue), ("prefill", first - queue), ("decode", last - first))
    one = curves.curves[0]._replace(label="", rows=tuple(range(len(runs.points))))
    marks = [drawn(runs, one, curves.axis, values, style, label) for style, (label, values) in enumerate(parts)]
    panel = panel_of("mean, ms", marks)
    says = "Mean time in the queue, from there to the first token, and from that to the last."
    says += f" Means over {', '.join(others)}." if (others := [
        short for key, short in short_keys(runs.axes).items() if key != curves.axis]) else ""
    says += " The scale is logarithmic." if panel.is_log else ""
    return Chart("load_breakdown", "Where the time goes", says, curves.axis, (panel,),
                 table_of_curves(_short(runs, curves), marks),
                 is_x_log=is_wide([float(each) for each in runs.axis(curves.axis)]))


def _efficiency(runs: Runs, curves: Curves) -> list[Chart]:
    """Return output tokens a second for each GPU paid for; empty where GPUs are not known."""
    gpus = runs.gpus()
    if np.isnan(gpus).all():
        return []
    panels, marks = _panels(runs, curves, [("output tokens/s per GPU", runs.values("output_throughput") / gpus)])
    best = max(((float(y), float(x), mark.label) for mark in marks for x, y in zip(mark.x, mark.y, strict=True)),
               default=None)
    says = (f"At most {figure(best[0])} output tokens/s per GPU, at {_short(runs, curves)} {plain(best[1])}." if best
            else "No run is done.")
    return [_chart(runs, curves, "load_efficiency", "Efficiency: tokens for each GPU", says, (panels, marks))]


def _outcomes(runs: Runs, curves: Curves) -> Chart:
    """Return the share of requests that ended in each way, over all points of a load."""
    whole = np.maximum(runs.values("requests.injected"), 1)
    one = curves.curves[0]._replace(label="", rows=tuple(range(len(runs.points))))
    found = [(name, runs.values(f"requests.{name}") / whole * 100) for name in OUTCOMES]
    found = [(name, values) for name, values in found if name == "completed" or np.nansum(values) > 0]
    marks = []
    for style, (name, values) in enumerate(found):
        mark = drawn(runs, one, curves.axis, values, style, name.replace("_", " "))
        marks.append(Line(mark.label, mark.x, mark.y, style))
    says = ("All requests completed at every load." if len(found) == 1 and np.nanmin(found[0][1], initial=100) == 100
            else "Percent of the requests, by what became of them; those that were waiting or running did not end.")
    x = marks[0].x
    table = table_of((_short(runs, curves), *(mark.label for mark in marks)), x,
                     *(np.interp(x, mark.x, mark.y) if len(mark.x) else x for mark in marks))
    return Chart("load_outcomes", "Outcomes of requests", says, curves.axis, (Panel("%", tuple(marks), (0, 104)),),
                 table, is_x_log=is_wide([float(each) for each in runs.axis(curves.axis)]))
