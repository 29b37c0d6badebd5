"""The answer of the page: one run of an experiment as numbers, charts and notes."""
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np

from simulator.api import Order, run_ordered
from simulator.assembly.latency import Readings
from simulator.assembly.site import sites_of
from simulator.config.experiment import Experiment
from simulator.config.layers import Layers, read_text
from simulator.config.load import changed, kind_of, plain, resolve
from simulator.errors import InputErrors, faults_of
from simulator.results.figures.chart import Chart
from simulator.results.interrupts import Aborted
from simulator.results.lanes import Lanes
from simulator.results.latency_charts import MEASURES, latency_chart
from simulator.results.load_charts import timeline
from simulator.results.report import COLUMNS, LATENCIES, facts, milliseconds, notes
from simulator.results.request_passes import COLUMNS as REQUEST_COLUMNS
from simulator.results.request_passes import Requests
from simulator.study.exploring.controls import state_of

NUM_COLUMNS = 240               # of pixels of the timeline, two points each
RATES = (("requests/s", "request_throughput"), ("goodput, requests/s", "request_goodput"),
         ("output tokens/s", "output_throughput"))
COSTS = (("cost, {} an hour", "per_hour"), ("cost, {} per million output tokens", "cost_per_million_output_tokens"),
         ("cost, {} per thousand requests", "cost_per_thousand_requests"))


class Superseded(Exception):
    """The page has asked for something else meanwhile."""


class Source(NamedTuple):
    """The text of an experiment.

    text : TOML. file : its name in messages; relative paths start at its folder.
    """

    text: str
    file: str

    def layers(self) -> Layers:
        """Return the table of the text.

        Raises
        ------
        InputErrors
            The text is no TOML, or of a study.
        """
        layers = read_text(self.text, self.file)
        if (kind := kind_of(layers)) is not None:
            raise InputErrors([f"{self.file}: a study, not an experiment; `simulator {kind}` runs it"])
        layers.name_after(self.file)
        return layers

    def experiment(self) -> Experiment:
        """Return the experiment. Raises InputErrors: it has faults."""
        return resolve(self.layers())


def answer_of(source: Source, readings: Readings, stop: Callable[[], bool]) -> dict[str, Any]:
    """Return the answer of a run, as the page takes it.

    Parameters
    ----------
    readings : shared by the runs of a session.
    stop : True: the run is not needed any more.

    Raises
    ------
    InputErrors
        Faults of the experiment, all at once.
    Superseded
        `stop` returned True.
    """
    experiment = source.experiment()
    with faults_of(source.file):
        result = result_of(experiment, readings, stop)
        memory = [line for site in sites_of(experiment) for line in site.kv_lines]
    bounds = {} if experiment.slo is None else plain(experiment.slo)
    return {"name": experiment.name, "controls": state_of(experiment), "figures": figures_of(result.summary),
            "facts": facts(result.summary), "latencies": latencies_of(result.summary),
            "charts": [content_of(chart) for chart in charts_of(result, bounds)], "notes": notes(result.summary),
            "sources": sources_of(experiment, result.summary), "memory": memory}


def result_of(experiment: Experiment, readings: Readings, stop: Callable[[], bool], **output: bool) -> Any:
    """Return the result of a run in memory. Raises Superseded: `stop` returned True.

    output : keys of [output]; default: tables for charts, without token times.
    """
    given = {"iterations": True, "requests": True, "token_times": False} | output
    experiment = changed(experiment, output=msgspec.structs.replace(experiment.output, **given))
    try:
        result = run_ordered(Order(experiment, None, False, True, readings=readings, stop=stop))
    except Aborted:
        raise Superseded from None
    if stop():
        raise Superseded
    return result


def figures_of(summary: dict[str, Any]) -> list[list[Any]]:
    """Return the numbers that are compared: name, value, and whether more is better."""
    found = [[label, summary[key], True] for label, key in RATES if summary.get(key) is not None]
    found += [[f"{label} {part}, ms", summary[key][part], False] for label, key in LATENCIES if key in summary
              for part in ("p50", "p99")]
    cost = summary.get("cost") or {}
    found += [[label.format(cost["currency"]), cost[key], False] for label, key in COSTS if cost.get(key) is not None]
    return [each for each in found if each[1] is not None]


def latencies_of(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the table of latencies, with the keys of its rows."""
    known = [(label, key) for label, key in LATENCIES if key in summary]
    return {"columns": ["ms", *COLUMNS], "keys": [key for _, key in known],
            "rows": [[label, *(milliseconds(summary[key][column]) for column in COLUMNS)] for label, key in known]}


def sources_of(experiment: Experiment, summary: dict[str, Any]) -> list[str]:
    """Return the tables that iteration times come from, a line each."""
    backends = dict.fromkeys(pool.latency.backend for pool in experiment.all_pools())
    found = [f"latency backend: {', '.join(backends)}"]
    for name, table in (summary.get("latency") or {}).get("tables", {}).items():
        found.append(f"{name}: {table['file']} ({table['version']})")
    return found


def content_of(chart: Chart) -> dict[str, Any]:
    """Return a chart as tables and lists, for msgspec.json."""
    panels = [panel._asdict() | {"marks": [{"kind": type(mark).__name__} | mark._asdict() for mark in panel.marks]}
              for panel in chart.panels]
    return chart._asdict() | {"panels": panels, "table": chart.table._asdict()}


def plain_array(value: Any) -> Any:
    """Return an array as a list, for msgspec.json."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(type(value))


def charts_of(result: Any, bounds: dict[str, float]) -> list[Chart]:
    """Return the charts of a result, those for which it has tables."""
    lanes = requests = None
    if result.num_rows("iterations") is not None:
        lanes = Lanes(lambda names: result.column_blocks("iterations", names), result.replicas,
                      num_columns=NUM_COLUMNS, is_brief=True)
    if result.num_rows("requests") is not None:
        requests = Requests(lambda: result.column_blocks("requests", REQUEST_COLUMNS), bounds,
                            0 if lanes is None else lanes.span.end_ns)
    found = [] if requests is None else [
        latency_chart(measure, {result.summary["name"]: requests.samples[measure.key]})
        for measure in MEASURES if measure.key in requests.samples]
    return found + ([] if lanes is None else [timeline(lanes, requests)])
