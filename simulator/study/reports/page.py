"""A report of a study before it is a page: its verdict, tables, charts."""
from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from simulator.results.figures import html
from simulator.results.figures.chart import Chart
from simulator.results.reports import shell

MOST_ROWS = 200                 # of a table on a page; files have all
NAME = 30                       # letters of a name beside or above a chart


class Section(NamedTuple):
    """A table under a title; without columns, facts: name and text of each."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    says: str = ""


class Page(NamedTuple):
    """The parts of a report, in order.

    says : the verdict, one line. more : the sentence below it. is_good : otherwise the verdict is marked.
    before, after : sections around the charts. absent : a sentence about each chart that is not there.
    files : title and text of the folded parts at the end.
    """

    name: str
    says: str
    more: str
    is_good: bool
    before: tuple[Section, ...]
    charts: tuple[Chart, ...]
    after: tuple[Section, ...] = ()
    absent: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()


def html_of(page: Page) -> str:
    """Return the report as HTML.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.
    """
    parts = [*map(_section, page.before), *shell.charts(page.charts, page.absent), *map(_section, page.after),
             *(html.folded(title, f"<pre>{escape(text)}</pre>") for title, text in page.files)]
    return shell.document(page.name, page.says, page.is_good, page.more, parts)


def section(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], says: str = "",
            where: str = "") -> Section:
    """Return a section with as many rows as a page holds.

    where : place of all rows, named if a page holds fewer.
    """
    rows = tuple(rows)
    if len(rows) > MOST_ROWS:
        says = f"{says} The first {MOST_ROWS} of {len(rows):,}; all are in {where}.".strip()
    return Section(title, columns, rows[:MOST_ROWS], says)


def _section(found: Section) -> str:
    says = f"<p>{escape(found.says)}</p>" if found.says else ""
    table = html.table(found.columns, found.rows, "" if found.columns else "facts") if found.rows else ""
    return f"<h2>{escape(found.title)}</h2>{says}{table}"


def shortened(text: str, most: int = NAME) -> str:
    """Return a text of at most `most` letters, with its middle left out."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head):]}"
