"""Scales of activations that are quantised token by token: the table `computescale`.

A row is the time of the kernel that also finds a scale for each token, less that of the kernel with a fixed scale,
which `scale_matrix` has. Some differences are 0.
"""
import numpy as np

from simulator.latency.operators.curves import EXTRAPOLATED, INTERPOLATED, Curve, Times

TABLE = "computescale"


def scale_times(database, width: float, tokens: np.ndarray) -> Times | None:
    """Return the times to find scales of `width` elements a token; None: no table.

    Differences are no utilisation of memory: between measured widths and numbers of tokens they are linear, and beyond
    them they grow in proportion.
    """
    curves = scale_curves(database)
    if not curves:
        return None
    widths = sorted(curves)
    place = int(np.searchsorted(widths, width))
    beside = widths[place:place + 1] if width in curves else widths[max(place - 1, 0):place + 1]
    rows = np.array([_along(curves[each], tokens) for each in beside])
    share = (width - beside[0]) / (beside[1] - beside[0]) if len(beside) == 2 else 0.0
    ns = rows[0] + (rows[-1] - rows[0]) * share
    if width not in curves and len(beside) == 1:
        ns = ns * (width / beside[0])
    sizes = curves[beside[0]].sizes
    is_measured = np.isin(tokens, sizes) & (width in curves)
    is_beyond = (tokens > sizes[-1]) | (tokens < sizes[0]) | (width > widths[-1]) | (width < widths[0])
    origins = np.where(is_beyond, EXTRAPOLATED, np.where(is_measured, 0, INTERPOLATED))
    return Times(ns, origins.astype(np.uint8))


def scale_curves(database) -> dict[float, Curve]:
    """Return the curves over tokens, by elements of a token."""
    return database.curves((TABLE,), lambda: _read(database))


def _along(curve: Curve, tokens: np.ndarray) -> np.ndarray:
    return np.interp(tokens, curve.sizes, curve.ns) * np.maximum(tokens / curve.sizes[-1], 1.0)


def _read(database) -> dict[float, Curve]:
    columns = database.columns(TABLE)
    if columns is None:
        return {}
    rows = database.pick(TABLE, columns, np.full(len(columns["latency_ms"]), True))
    return {width: curve for (width,), curve in database.split(rows, ("k",), "m", keeps_all=True).items()}
