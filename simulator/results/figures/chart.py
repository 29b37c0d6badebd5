"""A chart as data, before it is drawn."""
from typing import Any, NamedTuple

import numpy as np


class Line(NamedTuple):
    """Points joined by a line; `style` chooses colour and dash."""

    label: str              # "": not in the legend; also in the marks below
    x: np.ndarray
    y: np.ndarray
    style: int = 0
    steps: bool = False     # the value holds until the next point


class Band(NamedTuple):
    """The area between two lines."""

    label: str
    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    style: int = 0


class Points(NamedTuple):
    """Points alone; `style` chooses colour and marker."""

    label: str
    x: np.ndarray
    y: np.ndarray
    style: int = 0
    size: float = 3         # of a marker, in points


class Errors(NamedTuple):
    """Points with their intervals, joined by a line; NaN: it is not known."""

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    style: int = 0
    hollow: np.ndarray | None = None        # mask of points drawn hollow; None: none


class Labelled(NamedTuple):
    """Points with a name beside each, placed where it covers no other.

    joined : by steps, as a front is.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    texts: tuple[str, ...]
    style: int = 0
    joined: bool = False


class Columns(NamedTuple):
    """A histogram: column i reaches from edges[i] to edges[i + 1]."""

    label: str
    edges: np.ndarray
    heights: np.ndarray
    style: int = 0


class Bars(NamedTuple):
    """A horizontal bar for each name, with its value beside it."""

    names: tuple[str, ...]
    values: tuple[float, ...]


class Intervals(NamedTuple):
    """A horizontal interval for each name, a point at its value; NaN: not known."""

    names: tuple[str, ...]
    values: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    styles: tuple[int, ...]


class Spans(NamedTuple):
    """Spans of time: a row for each name, from the top."""

    names: tuple[str, ...]
    starts: tuple[float, ...]
    lengths: tuple[float, ...]
    styles: tuple[int, ...]
    texts: tuple[str, ...]          # beside each


class Grid(NamedTuple):
    """A heat map of rows and columns; NaN: not known."""

    label: str              # of the colours
    values: np.ndarray      # (rows, columns), the first row at the top
    x_range: tuple[float, float]


class Mark(NamedTuple):
    """A point with a text beside it."""

    x: float
    y: float
    text: str
    style: int = 0


class Rule(NamedTuple):
    """A vertical line with a text: a bound."""

    x: float
    text: str


class Level(NamedTuple):
    """A horizontal line with a text: a bound."""

    y: float
    text: str


class Panel(NamedTuple):
    """One pair of axes."""

    y_label: str
    marks: tuple[Any, ...]
    y_range: tuple[float, float] | None = None      # None: from 0 to the greatest value
    is_log: bool = False                            # the y axis is logarithmic above 1


class Table(NamedTuple):
    """The data of a chart, as text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Chart(NamedTuple):
    """A picture, the sentence that explains it, and its data."""

    name: str                       # of the file
    title: str
    says: str
    x_label: str
    panels: tuple[Panel, ...]       # one below the other, with one x axis
    table: Table
    x_range: tuple[float, float] | None = None
    is_x_log: bool = False          # values above 0
    is_x_whole: bool = False        # x is a count


MOST_ROWS = 60          # of a folded table


def table_of(columns: tuple[str, ...], *values) -> Table:
    """Return a table of equally long columns.

    Of long ones it has `MOST_ROWS` rows at equal distances, the first and the last among them.
    """
    count = len(values[0]) if values else 0
    rows = range(count)
    if count > MOST_ROWS:
        rows = sorted({round(row) for row in np.linspace(0, count - 1, MOST_ROWS)})
    return Table(columns, tuple(tuple(_text(column[row]) for column in values) for row in rows))


def _text(value) -> str:
    return value if isinstance(value, str) else number(float(value))


def number(value: float | None) -> str:
    """Return a number as text: three digits, more where it is larger.

    >>> number(0.01234), number(12.345), number(1234.5), number(None)
    ('0.0123', '12.3', '1,234', '-')
    """
    if value is None or value != value:
        return "-"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
