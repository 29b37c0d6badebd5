"""A report as one page that needs nothing else: no script, no font, no address."""
from html import escape

from simulator.results.figures import html, theme
from simulator.results.figures.chart import Chart, number
from simulator.results.report import COLUMNS, LATENCIES, facts, milliseconds
from simulator.results.reports.charts import Request, charts_of
from simulator.results.reports.differences import differences
from simulator.results.reports.material import Material
from simulator.results.reports.verdict import bottleneck, verdict

FIRST_LINE = "<!doctype html><!-- a report of simulator -->"
GROUPS = (("by_slo_class", "SLO class"), ("by_tenant", "tenant"), ("by_model", "model"))
MOST_GROUPS = 100
STYLE = """
*{box-sizing:border-box}
body{margin:0 auto;padding:16px;max-width:1120px;background:var(--paper);color:var(--ink);
font:15px/1.45 system-ui,sans-serif}
h1{font-size:1.5em;margin:.2em 0}h2{font-size:1.2em;margin:1.6em 0 .5em}h3{font-size:1em;margin:0}
.verdict{font-size:1.1em;font-weight:600;border-left:4px solid var(--c0);padding-left:10px;margin:.6em 0}
.bad{border-left:4px double var(--c1)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:20px 28px;align-items:start}
figure{margin:0;min-width:0;break-inside:avoid}figcaption p{margin:.25em 0 .4em;color:var(--quiet);font-size:.92em}
svg{width:100%;height:auto;display:block}svg image{image-rendering:pixelated}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.92em;font-variant-numeric:tabular-nums}
th,td{padding:3px 10px 3px 0;text-align:right;border-bottom:1px solid var(--faint);white-space:nowrap}
th:first-child{text-align:left;font-weight:600}.facts td{text-align:left;white-space:normal}
thead th{color:var(--quiet);font-weight:600}
summary{cursor:pointer;color:var(--quiet);font-size:.92em;padding:4px 0}
pre{overflow-x:auto;font-size:.85em;background:var(--paper);border:1px solid var(--faint);padding:8px}
@media print{body{max-width:none;font-size:11px}.charts{grid-template-columns:1fr 1fr}details:not([open]){display:none}}
"""


def page(material: Material, against: Material | None = None, request: Request = None) -> str:
    """Return the report as HTML; equal results give equal bytes.

    Parameters
    ----------
    against : results to compare with; None: none.
    request : id of a request whose time is shown; None: of none.

    Raises
    ------
    InputErrors
        There is no such request.
    MissingExtra
        matplotlib is not installed.
    """
    charts = charts_of(material, against, request)
    summary = material.summary
    says = verdict(material)
    good = summary["complete"] and "missed" not in says and summary["verdict"] == "stable"
    parts = [
        FIRST_LINE, '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(summary['name'])}: report</title><style>{theme.variables()}{STYLE}</style></head><body>",
        f"<header><h1>{escape(summary['name'])}</h1>",
        f'<p class="verdict{"" if good else " bad"}">{escape(says)}</p><p>{escape(bottleneck(material))}</p></header>',
        "<main>", *_summary(summary), *_groups(summary),
        *(differences(material, against) if against else ()), *_charts(charts, material), *_ends(material),
        "</main></body></html>\n"]
    return "\n".join(parts)


def _summary(summary: dict) -> list[str]:
    rows = [(label, *(milliseconds(summary[key][column]) for column in COLUMNS)) for label, key in LATENCIES
            if key in summary]
    return [f"<h2>Summary</h2>{html.table((), facts(summary), 'facts')}", "<h2>Latencies</h2>",
            html.table(("ms", *COLUMNS), rows),
            "<p>Of completed requests; ITL holds the gaps of all.</p>"]


def _groups(summary: dict) -> list[str]:
    """Return a table for each label that requests have."""
    parts = []
    for key, label in GROUPS:
        if groups := summary.get(key):
            rows = [(name, f"{each['requests']['injected']:,}", f"{each['requests']['completed']:,}",
                     "-" if each["slo_attainment"] is None else f"{each['slo_attainment']:.2%}",
                     *(milliseconds(each[metric][p]) for metric in ("ttft_ms", "tpot_ms", "e2el_ms")
                       for p in ("p50", "p99"))) for name, each in list(groups.items())[:MOST_GROUPS]]
            columns = (label, "requests", "completed", "within SLO",
                       *(f"{name} {p}" for name in ("TTFT", "TPOT", "E2EL") for p in ("p50", "p99")))
            more = f"<p>{len(groups) - MOST_GROUPS:,} more in summary.json.</p>" if len(groups) > MOST_GROUPS else ""
            parts.append(f"<h2>By {label}</h2>{html.table(columns, rows)}{more}")
    return parts


def _charts(charts: list[Chart], material: Material) -> list[str]:
    left_out = "".join(f"<p>{escape(sentence)}</p>" for sentence in material.absent.values())
    return [f'<h2>Charts</h2>{left_out}<div class="charts">', *map(html.figure, charts), "</div>"]


def _ends(material: Material) -> list[str]:
    """Return warnings, versions and the experiment."""
    found = material.warnings()
    warnings = "<ul>" + "".join(f"<li>{escape(each)}</li>" for each in found) + "</ul>" if found else "<p>None.</p>"
    versions = html.table((), [("seed", number(material.summary["seed"])), *material.versions().items()], "facts")
    return [f"<h2>Warnings</h2>{warnings}", f"<h2>Provenance</h2>{versions}",
            "<p>Machine, command and times of the run are in provenance.json.</p>",
            html.folded("Experiment, with every default", f"<pre>{escape(material.resolved_toml)}</pre>")]
