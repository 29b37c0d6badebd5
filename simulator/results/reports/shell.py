"""The frame of all reports: one HTML file without script, font or address, light and dark."""
from collections.abc import Iterable
from html import escape

from simulator.results.figures import html, theme
from simulator.results.figures.chart import Chart

FIRST_LINE = "<!doctype html><!-- a report of simulator -->"
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


def document(name: str, says: str, is_good: bool, more: str, parts: Iterable[str]) -> str:
    """Return a page.

    Parameters
    ----------
    says : the verdict, one line. is_good : otherwise it is marked.
    more : the sentence below it.
    parts : of the page below both, as HTML.
    """
    return "\n".join([
        FIRST_LINE, '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(name)}: report</title><style>{theme.variables()}{STYLE}</style></head><body>",
        f"<header><h1>{escape(name)}</h1>",
        f'<p class="verdict{"" if is_good else " bad"}">{escape(says)}</p><p>{escape(more)}</p></header>',
        "<main>", *parts, "</main></body></html>\n"])


def charts(found: Iterable[Chart], left_out: Iterable[str]) -> list[str]:
    """Return the part of a page that holds the charts.

    left_out : a sentence about each chart that is not there.
    """
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in left_out)
    return [f'<h2>Charts</h2>{sentences}<div class="charts">', *map(html.figure, found), "</div>"]
