"""The points of a study: combinations of the values of its axes.

A point is {dotted key: value}. Each axis that is drawn has a random stream of its own, so that another axis never
changes its draws.
"""
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from simulator.core.random_streams import RandomStreams
from simulator.errors import MissingExtra
from simulator.study.sweep.axes import Axis

DESIGNS = ("grid", "zip", "list", "random", "lhs", "sobol")
DRAWN = ("random", "lhs", "sobol")
INSTALL = "pip install 'simulator[fit]'"

Point = dict[str, Any]


def points_of(design: str, axes: Sequence[Axis], listed: Sequence[Point], num_points: int,
              seed: int) -> Iterator[Point]:
    """Yield the points of a design, in its order.

    Parameters
    ----------
    listed : points of the design "list", which has no axes. num_points : points to draw. seed : of the experiment.

    Raises
    ------
    MissingExtra
        "sobol" needs SciPy.
    """
    if design == "list":
        yield from (dict(point) for point in listed)
    elif design == "grid":                      # the last axis fastest
        for values in itertools.product(*(axis.values for axis in axes)):
            yield _point(axes, values)
    elif design == "zip":
        for values in zip(*(axis.values for axis in axes), strict=True):
            yield _point(axes, values)
    else:
        shares = _SHARES[design](axes, num_points, seed)
        for row in shares:
            yield _point(axes, [axis.at(share) for axis, share in zip(axes, row, strict=True)])


def count_of(design: str, axes: Sequence[Axis], listed: Sequence[Point], num_points: int) -> int:
    """Return the number of points of a design."""
    if design == "list":
        return len(listed)
    if design == "grid":
        return int(np.prod([len(axis.values) for axis in axes], dtype=object)) if axes else 1
    return len(axes[0].values) if design == "zip" else num_points


def is_chosen(point: Point, exclude: Sequence[Point], only: Sequence[Point]) -> bool:
    """Return whether a point is kept.

    It is dropped if an `exclude` agrees with it in all keys, or if there are `only` rules and none agrees.
    """
    flat = flattened(point)
    return not any(_agrees(flat, rule) for rule in exclude) and (not only or any(_agrees(flat, rule) for rule in only))


def flattened(point: Point, prefix: str = "") -> Point:
    """Return a point with one key for each inner key of a table."""
    flat = {}
    for key, value in point.items():
        if isinstance(value, dict) and value:
            flat |= flattened(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _agrees(flat: Point, rule: Point) -> bool:
    return all(key in flat and flat[key] == value for key, value in flattened(rule).items())


def _point(axes: Sequence[Axis], values: Sequence) -> Point:
    return {axis.key: value for axis, value in zip(axes, values, strict=True)}


def _random(axes: Sequence[Axis], count: int, seed: int) -> np.ndarray:
    return np.column_stack([_stream(seed, axis).random(count) for axis in axes])


def _lhs(axes: Sequence[Axis], count: int, seed: int) -> np.ndarray:
    """Draw a Latin hypercube: point i of axis a lies at (pi_a(i) + U) / N."""
    columns = []
    for axis in axes:
        stream = _stream(seed, axis)
        columns.append((stream.permutation(count) + stream.random(count)) / count)
    return np.column_stack(columns)


def _sobol(axes: Sequence[Axis], count: int, seed: int) -> np.ndarray:
    try:
        from scipy.stats import qmc
    except ImportError:
        raise MissingExtra([f'study.design: "sobol" needs SciPy: install it with {INSTALL}']) from None
    stream = RandomStreams(seed).generator("study.sobol")
    return qmc.Sobol(len(axes), scramble=True, rng=stream).random(count)


def _stream(seed: int, axis: Axis) -> np.random.Generator:
    return RandomStreams(seed).generator(f"study.{axis.key}")


_SHARES = {"random": _random, "lhs": _lhs, "sobol": _sobol}
