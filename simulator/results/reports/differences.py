"""Two runs side by side, in numbers."""
from html import escape

from simulator.results.figures import html
from simulator.results.figures.chart import number
from simulator.results.report import LATENCIES
from simulator.results.reports.charts import other_name
from simulator.results.reports.material import Material

RATES = (("requests/s", "request_throughput"), ("output tokens/s", "output_throughput"),
         ("goodput, requests/s", "request_goodput"))
PERCENTILES = ("mean", "p50", "p90", "p99")


def differences(material: Material, against: Material) -> list[str]:
    """Return a table of the numbers of both, and their differences, as HTML."""
    own, other = material.summary, against.summary
    pairs = [(label, own[key], other[key]) for label, key in RATES]
    pairs += [(f"{label} {part}, ms", own[key][part], other[key][part]) for label, key in LATENCIES
              if key in own and key in other for part in PERCENTILES]
    columns = ("", own["name"], other_name(material, against), "difference", "%")
    rows = [(label, number(one), number(two), *_difference(one, two)) for label, one, two in pairs]
    return [f"<h2>Against {escape(other_name(material, against))}</h2>{html.table(columns, rows)}",
            f"<p>Differences are {escape(own['name'])} less {escape(other_name(material, against))}.</p>"]


def _difference(one: float | None, two: float | None) -> tuple[str, str]:
    if one is None or two is None:
        return "-", "-"
    return number(one - two), f"{(one - two) / two:+.1%}" if two else "-"
