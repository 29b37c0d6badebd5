"""Room for the texts of a chart: legends, labels of ticks, names of points."""
from functools import cache

import numpy as np

WIDTH_POINTS = 480
LEGEND_POINTS = 400             # width of a legend
HANDLE_POINTS = 45              # mark before the text of an entry, and room behind it
BESIDE = 28                     # a label of the axis, ticks and the gap between
TICK_GAP = 8                    # between labels of ticks
TICK_COUNTS = (5, 4, 3, 2)      # at most, one after the other


def num_columns(labels: list[str]) -> int:
    """Return how many columns a legend has: as many as fit side by side."""
    points = [text_points(label) for label in labels]
    for count in range(len(labels), 1, -1):
        longest = [max(part) for part in np.array_split(points, count)]
        if sum(longest) + HANDLE_POINTS * count <= LEGEND_POINTS:
            return count
    return 1


@cache
def text_points(text: str) -> float:
    """Return the width of a text of a legend."""
    from matplotlib import font_manager, textpath  # an extra

    font = font_manager.FontProperties(family="DejaVu Sans", size=11)
    return textpath.text_to_path.get_text_width_height_descent(text, font, False)[0]


def thin_out(ax) -> None:
    """Leave out ticks of the x axis with labels that would cover others."""
    width = ax.get_position().width * WIDTH_POINTS
    for count in TICK_COUNTS:
        points = [text_points(text) + TICK_GAP for _, text in _ticks(ax.xaxis, ax.get_xlim())]
        if sum(points) <= width or ax.get_xscale() == "log":
            return
        ax.xaxis.get_major_locator().set_params(nbins=count)


def make_room(figure, axes: list) -> None:
    """Move the ends of axes inwards where labels of ticks would not have room."""
    left, right = axes[0].get_position().x0 * WIDTH_POINTS, axes[0].get_position().x1 * WIDTH_POINTS
    beside = BESIDE + max((text_points(text) for ax in axes for _, text in _ticks(ax.yaxis, ax.get_ylim())), default=0)
    first = max(left, beside) if axes[0].get_ylabel() else left         # rows with names have theirs already
    low, high = axes[-1].get_xlim()
    last = right
    for place, text in _ticks(axes[-1].xaxis, (low, high))[-1:]:
        is_log = axes[-1].get_xscale() == "log"
        at = np.log(place / low) / np.log(high / low) if is_log else (place - low) / (high - low)
        last = min(last, WIDTH_POINTS - 2 - text_points(text) / 2 + (1 - at) * (right - left))
    if len(figure.axes) == len(axes) and (first, last) != (left, right):       # colours beside have their own room
        for ax in axes:
            box = ax.get_position()
            ax.set_position((first / WIDTH_POINTS, box.y0, (last - first) / WIDTH_POINTS, box.height))


def _ticks(axis, ends: tuple[float, float]) -> list[tuple[float, str]]:
    """Return the ticks between the ends of an axis, with their labels."""
    places = [place for place in axis.get_majorticklocs() if min(ends) <= place <= max(ends)]
    return list(zip(places, axis.get_major_formatter().format_ticks(places), strict=True))


def gap_of(ax, y: float, first: float, last: float) -> float:
    """Return the distance of the marks between two shares of the width from y.

    In pixels.
    """
    nearest, place = float("inf"), ax.transData.transform((ax.get_xlim()[0], y))[1]
    for line in ax.lines:
        if line.get_transform() is ax.transData and len(points := ax.transData.transform(line.get_xydata())):
            box = ax.get_window_extent()
            share = (points[:, 0] - box.x0) / box.width
            chosen = points[(share >= first) & (share <= last), 1]
            nearest = min(nearest, float(np.min(np.abs(chosen - place), initial=float("inf"))))
    return nearest


def is_free(found: tuple, taken: list[tuple], bounds: np.ndarray) -> bool:
    """Say whether a box lies within bounds and covers no other.

    Boxes are (left, low, right, high).
    """
    left, low, right, high = found
    inside = left >= bounds[0] and low >= bounds[1] and right <= bounds[2] and high <= bounds[3] + 8
    return inside and not any(left < other[2] and right > other[0] and low < other[3] and high > other[1]
                              for other in taken)
