"""Measurement errors among matrix products, found by neighbours in rows and among shapes.

On some cards single points took 1.3 to 2.5 times as long as all around them: 5 % of aiconfigurator's fp8 products of
B200 (vLLM 0.24.0), 0.2 % on B300, which has the same arithmetic. A point is left out if it takes over FACTOR
times as long as the next larger number of rows of its shape, and as the shapes beside it at its number of rows. The
second condition spares kernels that are slow at a size, as those of cuBLAS in bfloat16: B300 repeats B200's there. Of
the points left out on B200 13 % are within 10 % of B300's times; of the points kept 1 % are over 1.25 times B300's.
Errors of the other points, each predicted from those beside it, fall from 10.4 to 7.1 % in the mean there; on no card
do they rise (docs/accuracy.md).
"""
import numpy as np

from simulator.latency.operators.curves import Curve

FACTOR = 1.25
ROUNDS = 6                      # a point that hid another one is left out in the round before


def without_outliers(curves: dict[tuple, Curve]) -> tuple[dict[tuple, Curve], int]:
    """Return curves without measurement errors, and the number of points left out.

    curves : over rows, by (n, k).
    """
    axes = [np.unique([site[axis] for site in curves]) for axis in range(2)] if curves else []
    if not curves or min(map(len, axes)) < 3:
        return curves, 0
    rows = np.unique(np.concatenate([curve.sizes for curve in curves.values()]))
    ns = np.full((len(axes[0]), len(axes[1]), len(rows)), np.nan)
    places = {site: tuple(np.searchsorted(values, size) for values, size in zip(axes, site)) for site in curves}
    for site, curve in curves.items():
        ns[places[site]][np.searchsorted(rows, curve.sizes)] = curve.ns
    count = _clear(ns, axes)
    if not count:
        return curves, 0
    kept = {site: ~np.isnan(ns[place][np.searchsorted(rows, curves[site].sizes)]) for site, place in places.items()}
    return {site: Curve(curve.sizes[kept[site]], curve.ns[kept[site]]) for site, curve in curves.items()}, count


def _clear(ns: np.ndarray, axes: list[np.ndarray]) -> int:
    """Replace outliers by NaN, and return their number. ns : (n, k, rows), NaN: not measured."""
    count = 0
    for _ in range(ROUNDS):
        with np.errstate(invalid="ignore"):
            is_out = (ns > FACTOR * _next(ns)) & (ns > FACTOR * np.fmin(*(_between(ns, axes[i], i) for i in range(2))))
        ns[is_out] = np.nan
        count += int(is_out.sum())
        if not is_out.any():
            break
    return count


def _next(ns: np.ndarray) -> np.ndarray:
    """Return the time at the next larger measured number of rows."""
    found, later = np.full_like(ns, np.nan), np.full(ns.shape[:2], np.nan)
    for column in range(ns.shape[2] - 1, -1, -1):
        found[..., column] = later
        later = np.where(np.isnan(ns[..., column]), later, ns[..., column])
    return found


def _between(ns: np.ndarray, sizes: np.ndarray, axis: int) -> np.ndarray:
    """Return the time between the two shapes beside each one along an axis, interpolated in logarithms."""
    logs, at = np.moveaxis(np.log(ns), axis, 0), np.log(sizes)
    share = ((at[1:-1] - at[:-2]) / (at[2:] - at[:-2]))[:, None, None]
    found = np.full_like(logs, np.nan)
    found[1:-1] = logs[:-2] + (logs[2:] - logs[:-2]) * share
    return np.moveaxis(np.exp(found), 0, axis)
