"""A report as one page that needs nothing else: no script, no font, no address."""
from concurrent.futures import ThreadPoolExecutor
from html import escape

from simulator.results.figures import html
from simulator.results.figures.chart import number
from simulator.results.figures.draw import check_installed
from simulator.results.report import COLUMNS, LATENCIES, facts, milliseconds
from simulator.results.reports import shell
from simulator.results.reports.charts import Request, charts_of
from simulator.results.reports.differences import differences
from simulator.results.reports.material import Material
from simulator.results.reports.verdict import bottleneck, verdict

GROUPS = (("by_slo_class", "SLO class"), ("by_tenant", "tenant"), ("by_model", "model"))
MOST_GROUPS = 100


def page(material: Material, against: Material | None = None, request: Request = None) -> str:
    """Return the report as HTML; equal results give equal bytes.

    Parameters
    ----------
    against : results to compare with; None: none.
    request : id of a request to show the phases of; None: of none.

    Raises
    ------
    InputErrors
        There is no such request.
    MissingExtra
        matplotlib is not installed.
    """
    with ThreadPoolExecutor(1) as beside:           # loading matplotlib takes 0.4 s, beside the inflating of tables
        loaded = beside.submit(check_installed)
        charts = charts_of(material, against, request)
    loaded.result()
    summary = material.summary
    says = verdict(material)
    good = summary["complete"] and "missed" not in says and summary["verdict"] == "stable"
    parts = [*_summary(summary), *_groups(summary), *(differences(material, against) if against else ()),
             *shell.charts(charts, material.absent.values()), *_ends(material)]
    return shell.document(summary["name"], says, good, bottleneck(material), parts)


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


def _ends(material: Material) -> list[str]:
    """Return warnings, versions and the experiment."""
    found = material.warnings()
    warnings = "<ul>" + "".join(f"<li>{escape(each)}</li>" for each in found) + "</ul>" if found else "<p>None.</p>"
    versions = html.table((), [("seed", number(material.summary["seed"])), *material.versions().items()], "facts")
    return [f"<h2>Warnings</h2>{warnings}", f"<h2>Provenance</h2>{versions}",
            "<p>Machine, command and times of the run are in provenance.json.</p>",
            html.folded("Experiment, with every default", f"<pre>{escape(material.resolved_toml)}</pre>")]
