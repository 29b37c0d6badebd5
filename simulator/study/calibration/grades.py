"""Quality of predictions of requests, by BLIS's measures and more.

Source: inference-sim (BLIS), docs/guide/observe-replay-calibrate.md and sim/workload/calibrate.go at f90a1e3a, for
means and percentiles, `bias_direction` and `quality`. Ours: `bias` is the mean relative error, since a few long
requests decide the sign of summed differences; measured zeros are counted; KS and Wasserstein's distance; the
noise floor, the distance between odd and even blocks of the measurements: an error below it is within noise.
"""
from typing import Any

import numpy as np

from simulator.study.accuracy.errors import errors_of, ks_distance

PERCENTILES = (50, 90, 95, 99)
# Quality: at most this MAPE, at least this r.
QUALITIES = (("excellent", 0.10, 0.95), ("good", 0.20, 0.85), ("fair", 0.35, 0.70))
POOR = "poor"
PER_CENT = 100.0


def grade(measured: np.ndarray, simulated: np.ndarray, blocks: np.ndarray) -> dict[str, Any] | None:
    """Return the measures of pairs; None: there are none.

    Parameters
    ----------
    measured, simulated : float64 (n,), NaN where one has no value.
    blocks : int64 (n,), the block of time of each.
    """
    has_both = np.isfinite(measured) & np.isfinite(simulated)
    measured, simulated, blocks = measured[has_both], simulated[has_both], blocks[has_both]
    if not len(measured):
        return None
    floor = noise_floor(measured, blocks)
    found = {
        "n": len(measured), "workload_level": _levels(measured, simulated),
        "request_level": _pairs(measured, simulated), **_distances(measured, simulated), "noise_floor": floor}
    return found | {"within_noise": None if floor is None else _is_within(found, floor)}


def quality_of(mape: float | None, r: float | None) -> str | None:
    """Return BLIS's word; None: no measured value is above 0.

    Without a correlation, for few or equal requests, BLIS takes 0.
    """
    if mape is None:
        return None
    return next((name for name, most, least in QUALITIES if mape < most and (r or 0.0) > least), POOR)


def wasserstein(left: np.ndarray, right: np.ndarray) -> float:
    """Return how far one sample must be moved to become the other.

    Wasserstein's distance, the area between their distribution functions.
    """
    points = np.sort(np.concatenate([left, right]))
    shares = [np.searchsorted(np.sort(side), points[:-1], side="right") / len(side) for side in (left, right)]
    return float((np.abs(shares[0] - shares[1]) * np.diff(points)).sum())


def noise_floor(measured: np.ndarray, blocks: np.ndarray) -> dict[str, float | None] | None:
    """Return the distance between odd and even blocks of the measurements.

    None: one of the two is empty.
    """
    odd = blocks % 2 == 1
    if odd.all() or not odd.any():
        return None
    parts = measured[odd], measured[~odd]
    levels = _levels(parts[1], parts[0])
    return {name: None if level["percent"] is None else abs(level["percent"]) / PER_CENT
            for name, level in levels.items()} | _distances(parts[1], parts[0], float(measured.mean()))


def _levels(measured: np.ndarray, simulated: np.ndarray) -> dict[str, dict[str, float | None]]:
    """Return mean and percentiles of both sides, over the whole workload."""
    names = ("mean", *(f"p{share}" for share in PERCENTILES))
    real, sim = (np.append(side.mean(), np.percentile(side, PERCENTILES)).tolist() for side in (measured, simulated))
    return {name: {"real": a, "sim": b, "error": b - a, "percent": PER_CENT * (b - a) / a if a else None}
            for name, a, b in zip(names, real, sim, strict=True)}


def _pairs(measured: np.ndarray, simulated: np.ndarray) -> dict[str, Any]:
    """Return the measures of single requests."""
    is_above = measured > 0.0
    zeros = int((~is_above).sum())
    if not is_above.any():
        return {"mape": None, "median_ape": None, "pearson_r": None, "bias": None, "bias_direction": None,
                "quality": None, "measured_zero": zeros}
    errors = errors_of(simulated[is_above], measured[is_above])
    total = float((simulated - measured)[is_above].sum())
    direction = "over-predict" if total > 0.0 else "under-predict" if total < 0.0 else "neutral"
    return {"mape": errors.mape, "median_ape": errors.median_ape, "pearson_r": errors.r, "bias": errors.bias,
            "bias_direction": direction, "quality": quality_of(errors.mape, errors.r), "measured_zero": zeros}


def _distances(measured: np.ndarray, simulated: np.ndarray, mean: float | None = None) -> dict[str, float | None]:
    mean = float(measured.mean()) if mean is None else mean
    return {"ks": ks_distance(simulated, measured),
            "wasserstein_over_mean": wasserstein(simulated, measured) / mean if mean else None}


def _is_within(found: dict[str, Any], floor: dict[str, float | None]) -> dict[str, bool | None]:
    """Return for each measure whether it is at most the noise floor."""
    errors = {name: level["percent"] and abs(level["percent"]) / PER_CENT
              for name, level in found["workload_level"].items()}
    errors |= {name: found[name] for name in ("ks", "wasserstein_over_mean")}
    return {name: None if error is None or floor[name] is None else error <= floor[name]
            for name, error in errors.items()}
