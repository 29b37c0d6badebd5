"""Draw charts with matplotlib: equal charts give equal bytes."""
import re
import warnings
from collections.abc import Callable
from functools import cache
from io import BytesIO

import numpy as np

from simulator.errors import MissingExtra
from simulator.results.figures import chart as charts
from simulator.results.figures import theme
from simulator.results.figures.layout import WIDTH_POINTS, gap_of, is_free, make_room, num_columns, thin_out

INSTALL = "pip install 'simulator[report]'"
PANEL_POINTS, GRID_POINTS = 190, 150
SMALL_PANEL_POINTS = 95         # where several panels are below each other
LEFT, RIGHT, BELOW, ABOVE, BETWEEN = 68, 14, 42, 30, 18         # points
BAR_POINTS = 24
FEW_ROWS = 4                    # of a grid: each has a tick
LEGEND_ROW = 16                 # height of another row of a legend
ROWS = charts.Bars | charts.Spans | charts.Intervals
FORMATS = ("png", "svg", "pdf")
METADATA = {"svg": dict.fromkeys(("Creator", "Date", "Format", "Type")),
            "pdf": dict.fromkeys(("Creator", "Producer", "CreationDate")), "png": {"Software": None}}


@cache
def _matplotlib():
    try:
        import matplotlib as mpl
        import matplotlib.figure
        import matplotlib.ticker
    except ImportError:
        raise MissingExtra([f"pictures need matplotlib: install it with {INSTALL}"]) from None
    return mpl


def check_installed() -> None:
    """Raise MissingExtra unless matplotlib is installed."""
    _matplotlib()


def inline_svg(chart: charts.Chart) -> str:
    """Return a chart as an SVG element for a page.

    It takes the colours of the page, `theme.variables`, and needs nothing else.

    Raises
    ------
    MissingExtra
        matplotlib is not installed; also in the functions below.
    """
    text = _drawn(chart, "svg", "").decode()
    text = text[text.index("<svg"):]
    text = re.sub(r' xmlns(?::xlink)?="[^"]*"| version="[^"]*"', "", text, count=3)
    text = re.sub(r'<svg width="[^"]*" height="[^"]*"', f'<svg role="img" aria-label="{_escaped(chart.title)}"', text,
                  count=1)
    text = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), text)
    text = re.sub(r'<g id="[^"]*">', "<g>", text)           # no element refers to groups
    text = re.sub(r"\n\s*", "\n", text.replace("xlink:href", "href"))
    return theme.with_variables(text.strip())


def picture(chart: charts.Chart, kind: str) -> bytes:
    """Return a chart as the content of a file: `png`, `svg` or `pdf`."""
    return _drawn(chart, kind, chart.title)


def _drawn(chart: charts.Chart, kind: str, title: str) -> bytes:
    matplotlib = _matplotlib()
    with matplotlib.rc_context(_settings(chart.name)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")      # a name in another script: browsers have it
        figure, axes = _figure(matplotlib, chart, title)
        for panel, ax in zip(chart.panels, axes, strict=True):
            if chart.is_x_log:
                ax.set_xscale("log")
            if chart.x_range:
                ax.set_xlim(*chart.x_range)         # before texts look for room in it
            _panel(matplotlib, figure, ax, panel)
        if chart.is_x_log:
            low, high = axes[0].get_xlim()
            steps = (1, 2, 5) if high < 100 * low else (1, 3) if high < 1000 * low else (1,)
            axes[0].xaxis.set_major_locator(matplotlib.ticker.LogLocator(10, steps, numticks=7))
            axes[0].xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        if chart.is_x_whole:
            axes[0].xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(6, integer=True))
        for ax in axes[:-1]:
            ax.tick_params(labelbottom=False)
        axes[-1].set_xlabel(chart.x_label)
        thin_out(axes[-1])
        make_room(figure, axes)
        file = BytesIO()
        figure.savefig(file, format=kind, metadata=METADATA[kind], dpi=150)
    return file.getvalue()


def _settings(name: str) -> dict:
    ink, quiet = theme.light("ink"), theme.light("quiet")
    return {"svg.hashsalt": name, "svg.fonttype": "none", "pdf.fonttype": 42, "font.family": "DejaVu Sans",
            "font.size": 12, "axes.edgecolor": quiet, "axes.labelcolor": ink, "text.color": ink, "xtick.color": quiet,
            "ytick.color": quiet, "xtick.labelcolor": ink, "ytick.labelcolor": ink, "axes.spines.top": False,
            "axes.spines.right": False, "axes.titlesize": 12, "legend.fontsize": 11, "axes.labelsize": 12,
            "xtick.labelsize": 11, "ytick.labelsize": 11, "figure.facecolor": theme.light("paper"),
            "axes.facecolor": theme.light("paper"), "grid.color": theme.light("faint"), "hatch.linewidth": 0.6,
            "path.simplify": True, "text.parse_math": False, "image.composite_image": False,
            "savefig.facecolor": theme.light("paper")}


def _figure(matplotlib, chart: charts.Chart, title: str):
    heights = [_points(panel, len(chart.panels)) for panel in chart.panels]
    has_grid = any(isinstance(mark, charts.Grid) for panel in chart.panels for mark in panel.marks)
    rows = max((-(-len(labels) // num_columns(labels)) for panel in chart.panels if (labels := _labels(panel))),
               default=0)
    above = (ABOVE if has_grid or rows else 14) + LEGEND_ROW * max(0, rows - 1) + 22 * bool(title)
    between = BETWEEN + 8 * has_grid
    total = above + sum(heights) + between * (len(heights) - 1) + BELOW
    figure = matplotlib.figure.Figure(figsize=(WIDTH_POINTS / 72, total / 72))
    if title:
        figure.text(8 / WIDTH_POINTS, 1 - 16 / total, title, fontsize=12, fontweight="bold")
    axes, top = [], total - above
    left = max([LEFT, *(_names_points(mark) for panel in chart.panels for mark in panel.marks)])
    width = WIDTH_POINTS - left - RIGHT - 62 * has_grid
    for height in heights:
        top -= height
        axes.append(figure.add_axes((left / WIDTH_POINTS, top / total, width / WIDTH_POINTS, height / total),
                                    sharex=axes[0] if axes else None))
        top -= between
    return figure, axes


def _labels(panel: charts.Panel) -> list[str]:
    """Return the legend entries of a panel; empty where it would name a single thing."""
    found = [mark.label for mark in panel.marks if getattr(mark, "label", "") and not isinstance(mark, charts.Grid)]
    return found if len(found) > 1 else []


def _points(panel: charts.Panel, num_panels: int) -> float:
    for mark in panel.marks:
        if isinstance(mark, ROWS):
            return max(2, len(mark.names)) * BAR_POINTS
        if isinstance(mark, charts.Grid):
            return min(GRID_POINTS, max(40, 16 * len(mark.values)))
    return PANEL_POINTS if num_panels == 1 else SMALL_PANEL_POINTS


def _names_points(mark) -> float:
    """Return the room that names of rows need beside the axes."""
    return 18 + 7.2 * max(map(len, mark.names), default=0) if isinstance(mark, ROWS) else 0


def _panel(matplotlib, figure, ax, panel: charts.Panel) -> None:
    ax.grid(axis="y", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.set_ylabel(panel.y_label)
    compact = matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:,.10g}")
    ax.xaxis.set_major_formatter(compact)
    ax.yaxis.set_major_formatter(compact)
    if ax.get_xscale() == "linear":
        ax.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(6))
    ax.yaxis.set_major_locator(matplotlib.ticker.MaxNLocator(5 if ax.bbox.height > 200 else 3))
    for mark in panel.marks:
        _DRAW[type(mark)](figure, ax, mark)
    if not any(isinstance(mark, ROWS | charts.Grid) for mark in panel.marks):
        ax.set_ylim(*(panel.y_range or (0, _top(ax, panel))))
    if panel.is_log:
        ax.set_yscale("symlog", linthresh=1)
        ax.yaxis.set_major_formatter(compact)
    names = ax.get_legend_handles_labels()[1]
    if len(names) > 1:
        ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 0.98), ncols=num_columns(names), frameon=False,
                  borderpad=0.1, handlelength=2.4, columnspacing=1.2, handletextpad=0.5)


def _top(ax, panel: charts.Panel) -> float:
    """Return where the axis ends; at 1 if all is 0."""
    drawn = [getattr(mark, "heights", getattr(mark, "y", None)) for mark in panel.marks]
    return ax.get_ylim()[1] if any(np.any(each) for each in drawn if each is not None) else 1.0


def _line(_, ax, line: charts.Line) -> None:
    label = f" {line.label}" if line.label.startswith("_") else line.label      # matplotlib hides such labels
    ax.plot(line.x, line.y, label=label or None, color=theme.colour(line.style), linewidth=1.4,
            linestyle=theme.DASHES[line.style % 6], drawstyle="steps-post" if line.steps else "default")


def _band(_, ax, band: charts.Band) -> None:
    ax.fill_between(band.x, band.low, band.high, label=band.label or None, color=theme.colour(band.style), alpha=0.25,
                    linewidth=0)


def _dots(_, ax, points: charts.Points) -> None:
    ax.plot(points.x, points.y, label=points.label or None, color=theme.colour(points.style), linestyle="none",
            marker=theme.MARKERS[points.style % 6], markersize=points.size, markerfacecolor="none",
            markeredgewidth=0.7 if points.size < 5 else 1.6)


def _errors(_, ax, errors: charts.Errors) -> None:
    colour = theme.colour(errors.style)
    ax.plot(errors.x, errors.y, label=errors.label or None, color=colour, linestyle=theme.DASHES[errors.style % 6],
            marker=theme.MARKERS[errors.style % 6], linewidth=1.4, markersize=4.5)
    if (known := ~np.isnan(errors.high - errors.low)).any():      # the middle: a value may lie outside its interval
        low, high = errors.low[known], errors.high[known]
        ax.errorbar(errors.x[known], (low + high) / 2, (high - low) / 2, fmt="none", ecolor=colour, capsize=3,
                    elinewidth=1)
    if errors.hollow is not None and errors.hollow.any():
        ax.plot(errors.x[errors.hollow], errors.y[errors.hollow], color=colour, linestyle="none", markersize=6,
                marker=theme.MARKERS[errors.style % 6], markerfacecolor=theme.light("paper"), zorder=4)


def _labelled(figure, ax, labelled: charts.Labelled) -> None:
    """Draw points, and their names each at the first place of several where it covers nothing drawn before."""
    ax.plot(labelled.x, labelled.y, label=labelled.label or None, color=theme.colour(labelled.style),
            linestyle=theme.DASHES[labelled.style % 6] if labelled.joined else "none",
            drawstyle="steps-post" if labelled.joined else "default", linewidth=1.1,
            marker=theme.MARKERS[labelled.style % 6], markersize=6)
    ax.margins(0.1, 0.12)
    ax.set_ylim(bottom=0)
    per_point = figure.dpi / 72
    places = ax.transData.transform(np.column_stack((labelled.x, labelled.y))) / per_point
    box = ax.get_window_extent()
    bounds = np.array([box.x0, box.y0, box.x1, box.y1]) / per_point
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in places.tolist()]
    for (x, y), at, text in zip(places.tolist(), zip(labelled.x, labelled.y, strict=True), labelled.texts, strict=True):
        width = 6.6 * len(text)
        for dx, dy in ((6, 3), (-6 - width, 3), (6, -14), (-6 - width, -14), (-width / 2, 7), (-width / 2, -18),
                       (6, 16), (-6 - width, 16), (6, -27), (-6 - width, -27)):
            found = (x + dx, y + dy, x + dx + width, y + dy + 11)
            if is_free(found, taken, bounds):
                taken.append(found)
                ax.annotate(text, at, (dx, dy), textcoords="offset points", fontsize=11, color=theme.light("ink"))
                break


def _columns(_, ax, columns: charts.Columns) -> None:
    ax.stairs(columns.heights, columns.edges, label=columns.label or None, color=theme.colour(columns.style), fill=True,
              alpha=0.75)


def _bars(_, ax, bars: charts.Bars) -> None:
    rows = np.arange(len(bars.names))
    ax.barh(rows, bars.values, height=0.62, color=theme.colour(0))
    for row, value in enumerate(bars.values):
        ax.annotate(charts.number(value), (value, row), (4, 0), textcoords="offset points", va="center", fontsize=11)
    _named_rows(ax, bars.names)
    ax.set_xlim(0, 1.22 * max(bars.values, default=1) or 1)


def _intervals(_, ax, intervals: charts.Intervals) -> None:
    for row, (value, low, high, style) in enumerate(zip(*intervals[1:], strict=True)):
        colour = theme.colour(style)
        if low == low and high == high:
            ax.plot([low, high], [row, row], color=colour, linewidth=2, marker="|", markersize=7)
        ax.plot([value], [row], color=colour, marker=theme.MARKERS[style % 6], markersize=6, linestyle="none")
    _named_rows(ax, intervals.names)
    ax.grid(axis="x", linewidth=0.6)
    ax.margins(x=0.06)
    low, high = ax.get_xlim()
    if low < 0 < high:
        ax.axvline(0, color=theme.light("ink"), linewidth=1.1)


def _spans(_, ax, spans: charts.Spans) -> None:
    ends = [start + length for start, length in zip(spans.starts, spans.lengths, strict=True)]
    whole = max(ends, default=1) or 1
    for row, (start, length, style, text) in enumerate(zip(*spans[1:], strict=True)):
        ax.barh(row, length, left=start, height=0.62, color=theme.colour(style), hatch=theme.HATCHES[style % 6],
                edgecolor=theme.light("paper"), linewidth=0.5)
        at, offset, side = (ends[row], 4, "left") if ends[row] <= 0.75 * whole else (start, -4, "right")
        if start < 0.25 * whole and side == "right":        # no room on either side
            at, offset, side = start + length / 2, 0, "center"
        ax.annotate(text, (at, row), (offset, 0), fontsize=11, va="center", textcoords="offset points", ha=side,
                    bbox=_behind(0.15))
    _named_rows(ax, spans.names)
    ax.set_xlim(0, whole * 1.02)


def _named_rows(ax, names: tuple[str, ...]) -> None:
    ax.grid(False)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(max(1, len(names)) - 0.5, -0.5)


def _grid(figure, ax, grid: charts.Grid) -> None:
    ax.grid(False)
    values = np.ma.masked_invalid(grid.values)
    highest = float(values.max()) if values.count() else 0.0
    shown = ax.imshow(values, aspect="auto", interpolation="none", cmap=theme.HEAT, vmin=0, vmax=highest or 1.0,
                      extent=(*grid.x_range, len(grid.values) - 0.5, -0.5))
    ticker, count = _matplotlib().ticker, len(grid.values)
    ax.yaxis.set_major_locator(                         # of few rows MaxNLocator takes halves
        ticker.FixedLocator(range(count)) if count <= FEW_ROWS else ticker.MaxNLocator(4, integer=True))
    box = ax.get_position()
    beside = figure.add_axes((box.x1 + 0.02, box.y0, 0.02, box.height))
    bar = figure.colorbar(shown, cax=beside)
    bar.outline.set_visible(False)
    beside.yaxis.set_major_formatter(ax.yaxis.get_major_formatter())
    beside.yaxis.set_major_locator(ticker.MaxNLocator(3))
    beside.set_title(grid.label, fontsize=11, loc="right")


def _mark(_, ax, mark: charts.Mark) -> None:
    ax.plot([mark.x], [mark.y], color=theme.colour(mark.style), linestyle="none",
            marker=theme.MARKERS[mark.style % 6], markersize=5)
    low, high = ax.get_xlim()
    is_right = mark.x - low > 0.55 * (high - low)
    ax.annotate(mark.text, (mark.x, mark.y), (-6, 2) if is_right else (6, -13), textcoords="offset points", fontsize=11,
                ha="right" if is_right else "left", va="baseline", color=theme.light("ink"), bbox=_behind(0.05))


def _rule(_, ax, rule: charts.Rule) -> None:
    low, high = ax.get_xlim()
    middle = low * (high / low) ** 0.7 if ax.get_xscale() == "log" else low + 0.7 * (high - low)
    is_right = rule.x > middle
    ax.axvline(rule.x, color=theme.light("ink"), linewidth=1.1, linestyle=(0, (4, 3)))
    ax.annotate(rule.text, (rule.x, 0.04), (-4 if is_right else 4, 0), xycoords=("data", "axes fraction"), fontsize=11,
                textcoords="offset points", ha="right" if is_right else "left")


def _level(_, ax, level: charts.Level) -> None:
    ax.axhline(level.y, color=theme.light("ink"), linewidth=1.1, linestyle=(0, (4, 3)))
    is_right = gap_of(ax, level.y, 0.7, 1.0) > gap_of(ax, level.y, 0.0, 0.3)
    ax.annotate(level.text, (0.99 if is_right else 0.01, level.y), (0, 3), xycoords=("axes fraction", "data"),
                fontsize=11, textcoords="offset points", ha="right" if is_right else "left", zorder=1.5)


def _behind(pad: float) -> dict:
    """Return a paper-coloured box for a text above other marks."""
    return {"boxstyle": f"square,pad={pad}", "facecolor": theme.light("paper"), "edgecolor": "none", "alpha": 0.8}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


_DRAW: dict[type, Callable] = {
    charts.Line: _line, charts.Band: _band, charts.Points: _dots, charts.Columns: _columns, charts.Bars: _bars,
    charts.Spans: _spans, charts.Grid: _grid, charts.Mark: _mark, charts.Rule: _rule, charts.Errors: _errors,
    charts.Labelled: _labelled, charts.Intervals: _intervals, charts.Level: _level}
