"""All charts of a run, in the order in which they are read."""
from simulator.results.figures.chart import Chart
from simulator.results.latency_charts import MEASURES, latency_chart
from simulator.results.load_charts import heat_maps, timeline, utilisation
from simulator.results.reports.batch_charts import batch_histograms, durations, outcomes
from simulator.results.reports.material import Material
from simulator.results.reports.waterfall import waterfall

Request = str | None


def charts_of(material: Material, against: Material | None = None, request: Request = None) -> list[Chart]:
    """Return the charts for which there are tables.

    `material.absent` then names missing charts.

    Parameters
    ----------
    against : results to show beside, as distributions of latencies; None: none.
    request : id of a request to show the phases of; None: of none.

    Raises
    ------
    InputErrors
        There is no such request.
    """
    charts = [] if request is None else [waterfall(material.result, request)]
    charts += _latencies(material, against)
    if material.requests is not None:
        charts.append(outcomes(material.requests))
    if (lanes := material.lanes) is not None:
        charts += [utilisation(lanes), timeline(lanes, material.requests), heat_maps(lanes), durations(lanes),
                   *batch_histograms(lanes)]
    return charts


def _latencies(material: Material, against: Material | None) -> list[Chart]:
    charts = []
    if against is not None:
        against.stand_beside(material)
    for measure in MEASURES:
        if (own := material.sample(measure.key)) is None:
            continue
        samples = {material.summary["name"]: own}
        if against is not None and (other := against.sample(measure.key)) is not None:
            samples[other_name(material, against)] = other
        charts.append(latency_chart(measure, samples))
    return charts


def other_name(material: Material, against: Material) -> str:
    """Return the name of the results to compare with, beside the others."""
    own, other = material.summary["name"], against.summary["name"]
    return other if other != own else f"{other} (against)"
