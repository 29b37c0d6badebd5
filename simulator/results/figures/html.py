"""Parts of a page: tables, and charts with their sentence and their data."""
from collections.abc import Iterable
from html import escape

from simulator.results.figures.chart import Chart, Table
from simulator.results.figures.draw import inline_svg


def table(columns: Iterable[str], rows: Iterable[Iterable[str]], kind: str = "") -> str:
    """Return a table; the first column names the rows."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(_row(list(row)) for row in rows)
    return (f'<div class="wide"><table{f" class={kind}" if kind else ""}>' + (f"<thead><tr>{head}</tr></thead>" if head
            else "") + f"<tbody>{body}</tbody></table></div>")


def _row(cells: list[str]) -> str:
    rest = "".join(f"<td>{escape(cell)}</td>" for cell in cells[1:])
    return f'<tr><th scope="row">{escape(cells[0])}</th>{rest}</tr>'


def folded(title: str, content: str) -> str:
    """Return content that is folded under its title."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def data(found: Table) -> str:
    """Return the folded table of the data of a chart."""
    return folded("Data", table(found.columns, found.rows))


def figure(chart: Chart) -> str:
    """Return a chart with title, sentence and folded data.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.
    """
    says = f"<figcaption><h3>{escape(chart.title)}</h3><p>{escape(chart.says)}</p></figcaption>"
    return f'<figure id="{chart.name}">{says}{inline_svg(chart)}{data(chart.table)}</figure>'
