"""Charts as text for a terminal, by plotext; lines differ by their markers, nothing is coloured."""
import math
from textwrap import fill

from simulator.errors import MissingExtra
from simulator.results.figures import chart as charts
from simulator.results.figures.draw import INSTALL

MARKERS = ("braille", "o", "x", "+")
HEIGHT = 16
BAR_WIDTH = 40
CURVES = charts.Line | charts.Points | charts.Columns | charts.Errors | charts.Labelled


def text_of(chart: charts.Chart, width: int) -> str:
    """Return the panels of a chart as text, its title above and its sentence below.

    Heat maps, which need colours, are left to the sentence.

    Parameters
    ----------
    width : columns of the terminal.

    Raises
    ------
    MissingExtra
        plotext is not installed.
    """
    try:
        import plotext
    except ImportError:
        raise MissingExtra([f"plots in the terminal need plotext: install it with {INSTALL}"]) from None
    shown = [chart.title]
    for panel in chart.panels:
        shown += [_bars(mark.names, getattr(mark, "values", None) or mark.lengths) for mark in panel.marks
                  if isinstance(mark, charts.Bars | charts.Spans)]
        shown += [_intervals(mark) for mark in panel.marks if isinstance(mark, charts.Intervals)]
        if marks := [mark for mark in panel.marks if isinstance(mark, CURVES)]:
            shown.append(_plot(plotext, panel, marks, chart.x_label, width))
    return "\n".join((*shown, fill(chart.says, width, break_long_words=False, break_on_hyphens=False)))


def _plot(plotext, panel: charts.Panel, marks: list, x_label: str, width: int) -> str:
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, HEIGHT)
    for number, mark in enumerate(marks):
        x, y = _points(mark)
        if len(x):
            signal = figure.signal(x.tolist(), y.tolist(), marker=MARKERS[number % len(MARKERS)])
            signal = signal if isinstance(mark, charts.Points | charts.Labelled) else signal.lines()
            figure.draw(signal.label(mark.label) if mark.label else signal)
    for number, axis in enumerate("xy"):
        if limits := _limits([value for mark in marks for value in _points(mark)[number].tolist()]):
            figure.ruler(axis).lim(*limits)
    figure.label(x_label, "x")
    figure.label(panel.y_label, "y")
    return "\n".join(line.rstrip() for line in plotext.uncolorize(str(figure.build())).splitlines()).rstrip()


def _points(mark) -> tuple:
    if isinstance(mark, charts.Columns):
        return (mark.edges[:-1] + mark.edges[1:]) / 2, mark.heights
    return mark[1:3]


def _limits(values: list[float]) -> tuple[float, float] | None:
    """Return the ends of an axis on which all points have one value; None: they differ, and plotext finds them.

    It begins at 0: plotext goes from 1 below to 1 above, where no time and no count can be.
    """
    known = [value for value in values if math.isfinite(value)]
    if not known or min(known) != max(known):
        return None
    (value, *_) = known
    return (min(value * 1.25, 0.0), max(value * 1.25, 0.0)) if value else (0.0, 1.0)


def _bars(names: tuple[str, ...], values: tuple[float, ...]) -> str:
    """Return a bar for each name: horizontal ones of plotext 6.1 come out without their lengths."""
    highest, room = max(values, default=0) or 1, max(map(len, names), default=0)
    return "\n".join(f"{name:<{room}} {'█' * round(BAR_WIDTH * value / highest)} {charts.number(value)}"
                     for name, value in zip(names, values, strict=True))


def _intervals(found: charts.Intervals) -> str:
    """Return a line for each name: its value and the ends of its interval."""
    room = max(map(len, found.names), default=0)
    return "\n".join(f"{name:<{room}} {charts.number(value)}" + (
        f" ({charts.number(low)} to {charts.number(high)})" if low == low else "")
        for name, value, low, high, _ in zip(*found, strict=True))
