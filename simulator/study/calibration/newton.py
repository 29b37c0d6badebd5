"""One step of Gauss and Newton: where residuals would be least if they changed evenly with each key.

Residuals are those of quantiles alone: single requests change by leaps, as one more or less is ready when an
iteration begins, and tell of a small move nothing but noise.
"""
from collections.abc import Callable, Mapping

import numpy as np

from simulator.study.calibration.objective import PRIOR_WEIGHT, QUANTILES
from simulator.study.calibration.steps import scipy_optimize
from simulator.study.calibration.table import FitKey

NUDGE_FRAC, NUDGE_RANGE_FRAC = 0.02, 1e-5       # of a value, and at least of its range
GROWTH, SEEN = 2.0, 0.02
DAMPINGS = (0.0, 0.1, 1.0, 10.0)                # of Levenberg and Marquardt, until one makes the objective less
ROUNDS = 6
LEAST_GAIN = 1e-4                               # of the objective, in a round, or it is the last


def nudges(residuals_at: Callable[[dict[str, float]], np.ndarray], now: np.ndarray, values: Mapping[str, float],
           fit: Mapping[str, FitKey]) -> tuple[dict[str, float], np.ndarray]:
    """Return how far each key is moved to see what changes, and the slopes.

    Moves grow until quantiles of one metric change by 2 % in the mean, at most to half of the range. They go inwards
    where a bound is near.

    Returns
    -------
    tuple
        Key -> move; float64 (n, k), changes of residuals over moves.
    """
    found, slopes = {}, []
    for key, bounds in fit.items():
        span = bounds.max - bounds.min
        size = max(NUDGE_FRAC * abs(values[key]), NUDGE_RANGE_FRAC * span)
        while True:
            move = size if values[key] + size <= bounds.max else -size
            change = residuals_at({**values, key: values[key] + move}) - now
            if _largest_mean(change) >= SEEN or GROWTH * size > span / 2:
                break
            size *= GROWTH
        found[key] = move
        slopes.append(change / move)
    return found, np.column_stack(slopes)


def step(now: np.ndarray, slopes: np.ndarray, values: Mapping[str, float], fit: Mapping[str, FitKey],
         damping: float = 0.0) -> dict[str, float]:
    """Return the values after one step, within the bounds.

    Parameters
    ----------
    now : float64 (n,), residuals at `values`. slopes : (n, k), how they change with each key.
    damping : what a step of the size of a key's own effect costs, in shares of that effect.
    """
    bounds, at = list(fit.values()), np.array([values[key] for key in fit])
    rows, wanted = [slopes], [-now]
    for i, each in enumerate(bounds):
        if each.prior is not None:
            weight = np.sqrt(PRIOR_WEIGHT) / each.prior_sd
            rows.append(weight * np.eye(len(bounds))[[i]])
            wanted.append(np.array([weight * (each.prior - at[i])]))
    matrix = np.concatenate(rows)
    sizes = np.sqrt((matrix ** 2).sum(axis=0))
    sizes[sizes == 0.0] = 1.0
    matrix = np.concatenate([matrix / sizes, np.sqrt(damping) * np.eye(len(bounds))])
    lows, highs = (np.array([getattr(each, name) for each in bounds]) - at for name in ("min", "max"))
    found = scipy_optimize().lsq_linear(
        matrix, np.concatenate([*wanted, np.zeros(len(bounds))]),
        (np.minimum(lows * sizes, 0.0) - 1e-12, np.maximum(highs * sizes, 0.0) + 1e-12), method="bvls")
    moved = np.clip(at + found.x / sizes, [each.min for each in bounds], [each.max for each in bounds])
    return dict(zip(fit, moved.tolist(), strict=True))


def polished(residuals_at: Callable[[dict[str, float]], np.ndarray], evaluate: Callable[[dict[str, float]], float],
             values: dict[str, float], fit: Mapping[str, FitKey]) -> dict[str, float]:
    """Return values with an objective that is no larger, after a few steps.

    Parameters
    ----------
    residuals_at : float64 (n,), of values. evaluate : the objective.
    """
    best = evaluate(values)
    for _ in range(ROUNDS):
        now = residuals_at(values)
        _, slopes = nudges(residuals_at, now, values, fit)
        before = best
        for damping in DAMPINGS:
            tried = step(now, slopes, values, fit, damping)
            if (found := evaluate(tried)) < best:
                best, values = found, tried
                break
        if before - best <= LEAST_GAIN * before:
            break
    return values


def _largest_mean(change: np.ndarray) -> float:
    """Return by how much the quantiles of a metric change in the mean, of that which changes most."""
    of_metrics = change.reshape(-1, len(QUANTILES)) * np.sqrt(len(QUANTILES))
    return float(np.abs(of_metrics.mean(axis=1)).max())
