"""One step of Gauss and Newton: the least residuals, if they changed linearly with each key.

Residuals are those of quantiles alone: single requests change by leaps, as one more or less is ready when an
iteration begins, so their response to a small move is nothing but noise.
"""
from collections.abc import Callable, Mapping

import numpy as np

from simulator.study.calibration.calibrate_table import FitKey
from simulator.study.calibration.objective import PRIOR_WEIGHT, QUANTILES
from simulator.study.calibration.steps import scipy_optimize

NUDGE_FRAC, NUDGE_RANGE_FRAC = 0.02, 1e-5       # of a value, and at least of its range
GROWTH = 2.0


def reach_of(residuals_at: Callable[[dict[str, float]], np.ndarray], values: Mapping[str, float],
             fit: Mapping[str, FitKey], seen: float) -> np.ndarray:
    """Return the distance that each key has to move to change times, float64 (k,).

    Moves grow until quantiles of one metric change by `seen` in the mean, at most to half of the range. They go away
    from a bound that is near.
    """
    now, found = residuals_at(dict(values)), []
    for key, bounds in fit.items():
        span = bounds.max - bounds.min
        size = max(NUDGE_FRAC * abs(values[key]), NUDGE_RANGE_FRAC * span)
        while GROWTH * size <= span / 2:
            move = size if values[key] + size <= bounds.max else -size
            if _largest_mean(residuals_at({**values, key: values[key] + move}) - now) >= seen:
                break
            size *= GROWTH
        found.append(size)
    return np.array(found)


def step(now: np.ndarray, slopes: np.ndarray, values: Mapping[str, float],
         fit: Mapping[str, FitKey]) -> dict[str, float]:
    """Return the values after one step, within the bounds.

    Parameters
    ----------
    now : float64 (n,), residuals at `values`. slopes : (n, k), their change with each key.
    """
    bounds, at = list(fit.values()), np.array([values[key] for key in fit])
    rows, targets = [slopes], [-now]
    for i, each in enumerate(bounds):
        if each.prior is not None:
            weight = np.sqrt(PRIOR_WEIGHT) / each.prior_sd
            rows.append(weight * np.eye(len(bounds))[[i]])
            targets.append(np.array([weight * (each.prior - at[i])]))
    matrix = np.concatenate(rows)
    sizes = np.sqrt((matrix ** 2).sum(axis=0))
    sizes[sizes == 0.0] = 1.0
    lows, highs = (np.array([getattr(each, name) for each in bounds]) - at for name in ("min", "max"))
    found = scipy_optimize().lsq_linear(
        matrix / sizes, np.concatenate(targets),
        (np.minimum(lows * sizes, 0.0) - 1e-12, np.maximum(highs * sizes, 0.0) + 1e-12), method="bvls")
    moved = np.clip(at + found.x / sizes, [each.min for each in bounds], [each.max for each in bounds])
    return dict(zip(fit, moved.tolist(), strict=True))


def _largest_mean(change: np.ndarray) -> float:
    """Return the mean change of the quantiles of the metric that changes most."""
    of_metrics = change.reshape(-1, len(QUANTILES)) * np.sqrt(len(QUANTILES))
    return float(np.abs(of_metrics.mean(axis=1)).max())
