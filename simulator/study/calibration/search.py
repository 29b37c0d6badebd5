"""Values of keys that make an objective small: Nelder and Mead's simplex from five starts.

The starts are a Latin hypercube: for key a and start i the share of its range is (pi_a(i) + U) / 5, with the
permutation pi_a and U of the stream `study.<key>`, so that another key changes neither. Each start has an eighth
of the evaluations. The best values are improved by planes (`surface`), which can follow a valley between keys that
compensate each other; then the simplex again with the remaining evaluations, and planes. A range that spans three
decades or more is searched by its cube root where it begins at 0, and by its logarithm elsewhere.
"""
import math
from collections.abc import Callable, Mapping

import numpy as np

from simulator.core.random_streams import RandomStreams
from simulator.study.calibration.calibrate_table import FitKey
from simulator.study.calibration.steps import scipy_optimize
from simulator.study.calibration.surface import improved

NUM_STARTS = 5
SHARE = 1 / 8           # of the evaluations, for each start
STEP = 0.15             # of the range, between the corners of the first simplex
CLOSE, CLOSE_OBJECTIVE = 1e-5, 1e-9
WIDE = 1e3


class Scale:
    """A range as 0 .. 1."""

    def __init__(self, bounds: FitKey):
        self._low, self._high = bounds.min, bounds.max
        is_wide = bounds.min >= 0.0 and bounds.max >= WIDE * max(bounds.min, 1.0 if bounds.min == 0.0 else bounds.min)
        self._is_cubic, self._is_log = is_wide and bounds.min == 0.0, is_wide and bounds.min > 0.0

    def value(self, share: float) -> float:
        """Return the value at a share of the range."""
        share = min(max(float(share), 0.0), 1.0)
        if self._is_cubic:
            return self._high * share ** 3
        if self._is_log:
            return self._low * (self._high / self._low) ** share
        return self._low + share * (self._high - self._low)

    def share(self, value: float) -> float:
        """Return the share of the range at a value."""
        if self._is_cubic:
            return (value / self._high) ** (1 / 3)
        if self._is_log:
            return math.log(value / self._low) / math.log(self._high / self._low)
        return (value - self._low) / (self._high - self._low)


def starts_of(fit: Mapping[str, FitKey], seed: int) -> np.ndarray:
    """Return the starts, float64 (5, k), shares of ranges."""
    streams = RandomStreams(seed)
    columns = []
    for key in fit:
        draw = streams.generator(f"study.{key}")
        columns.append((draw.permutation(NUM_STARTS) + draw.random(NUM_STARTS)) / NUM_STARTS)
    return np.column_stack(columns)


def least(evaluate: Callable[[dict[str, float]], float], residuals_at: Callable[[dict[str, float]], np.ndarray],
          fit: Mapping[str, FitKey], evaluations: int, seed: int) -> dict[str, float]:
    """Return the values with the least objective found.

    Parameters
    ----------
    evaluate : the objective of values. residuals_at : residuals of quantiles.
    evaluations : of the simplex, at most.
    """
    scales = {key: Scale(bounds) for key, bounds in fit.items()}
    best: tuple[float, dict[str, float]] = (math.inf, {})

    def objective_of(values: dict[str, float]) -> float:
        nonlocal best
        found = evaluate(values)
        if found < best[0]:
            best = found, values
        return found

    def at(shares: np.ndarray) -> float:
        return objective_of(values_of(scales, shares))

    each = max(int(SHARE * evaluations), len(fit) + 2)
    for start in starts_of(fit, seed):
        _walk(at, start, each, STEP)
    draw = RandomStreams(seed).generator("study.surface")
    improved(residuals_at, objective_of, best[1], fit, draw)
    rest = max(evaluations - NUM_STARTS * each, len(fit) + 2)
    _walk(at, np.array([scale.share(best[1][key]) for key, scale in scales.items()]), rest, STEP / 10)
    return improved(residuals_at, objective_of, best[1], fit, draw)


def values_of(scales: Mapping[str, Scale], shares: np.ndarray) -> dict[str, float]:
    """Return the values at shares of the ranges."""
    return {key: scale.value(share) for (key, scale), share in zip(scales.items(), shares, strict=True)}


def _walk(at: Callable[[np.ndarray], float], start: np.ndarray, evaluations: int, step: float) -> None:
    corners = np.tile(start, (len(start) + 1, 1))
    for i, share in enumerate(start):
        corners[i + 1, i] = share + step if share + step <= 1.0 else share - step
    scipy_optimize().minimize(
        at, start, method="Nelder-Mead", bounds=[(0.0, 1.0)] * len(start),
        options={"maxfev": evaluations, "initial_simplex": corners, "xatol": CLOSE, "fatol": CLOSE_OBJECTIVE})
