"""A result as a notebook shows it: the table, and two charts where matplotlib is installed."""
from html import escape

from simulator.errors import MissingExtra
from simulator.results.figures import html, theme
from simulator.results.figures.draw import INSTALL
from simulator.results.lanes import Lanes
from simulator.results.latency_charts import MEASURES, latency_chart
from simulator.results.load_charts import timeline
from simulator.results.report import summary_table
from simulator.results.request_passes import COLUMNS, Requests

NUM_COLUMNS = 80        # of pixels of the timeline: a notebook stores its output
PLACE = ".simulator-result"
STYLE = f"{PLACE} svg{{max-width:480px;display:block;background:var(--paper)}}"


def html_of(result) -> str:
    """Return a result as HTML of less than 60 kB."""
    shown = [f"<pre>{escape(summary_table(result.summary))}</pre>"]
    try:
        shown += [f"<p>{escape(chart.says)}</p>{html.inline_svg(chart)}" for chart in _charts(result)]
    except MissingExtra:
        shown.append(f"<p>Charts need matplotlib: {INSTALL}</p>")
    return (f'<div class="{PLACE[1:]}"><style>{theme.variables(PLACE)}{STYLE}</style>' + "".join(shown) + "</div>")


def _charts(result) -> list:
    """Return the charts for which there are tables."""
    charts, requests = [], None
    lanes = None
    if result.num_rows("iterations") is not None:
        lanes = Lanes(lambda names: result.column_blocks("iterations", names), result.replicas,
                      num_columns=NUM_COLUMNS, is_brief=True)
    if result.num_rows("requests") is not None:
        requests = Requests(lambda: result.column_blocks("requests", COLUMNS), {},
                            0 if lanes is None else lanes.span.end_ns, [MEASURES[0].key])
        charts.append(latency_chart(MEASURES[0], {result.summary["name"]: requests.samples[MEASURES[0].key]}))
    if lanes is not None:
        charts.append(timeline(lanes, requests))
    return charts
