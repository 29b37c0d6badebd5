"""The Pareto front: candidates that no other candidate dominates.

a dominates b if it is nowhere worse and somewhere better; equal candidates both stay. Values that lie within half of
the wider interval of each other count as equal, so that noise makes no winners.
"""
import numpy as np


def front(values: np.ndarray, is_larger_better: np.ndarray, half_widths: np.ndarray | None = None) -> np.ndarray:
    """Return which candidates no other dominates.

    Parameters
    ----------
    values : float64 (candidates, objectives). NaN is worse than any number.
    is_larger_better : bool (objectives,).
    half_widths : float64 (candidates, objectives), of the values' intervals; NaN: not known, as 0. None: all exact.

    Returns
    -------
    np.ndarray
        bool (candidates,).
    """
    gains = np.where(is_larger_better, values, -np.asarray(values, dtype=float))
    gains = np.where(np.isnan(gains), -np.inf, gains)
    widths = np.zeros_like(gains) if half_widths is None else np.nan_to_num(half_widths)
    stays = np.ones(len(gains), dtype=bool)
    for i, (gain, width) in enumerate(zip(gains, widths, strict=True)):
        with np.errstate(invalid="ignore"):                     # inf - inf: equal
            lead = np.where(gains == gain, 0.0, gains - gain)   # of the others
        is_equal = np.abs(lead) <= np.maximum(widths, width) / 2
        is_better, is_worse = (lead > 0) & ~is_equal, (lead < 0) & ~is_equal
        stays[i] = not np.any(is_better.any(axis=1) & ~is_worse.any(axis=1))
    return stays
