"""The objective of a fit to requests: the distance of simulated times from measured ones, in logarithms.

For each of TTFT, TPOT and E2EL: the mean squared log ratio of the quantiles 5, 10, ... 95 %, and 0.1 x that of single
requests; summed over the metrics, the mean over data sets; and of each key with a prior the squared distance in
standard deviations x 0.01, so that one standard deviation counts as times that are 10 % off. Logarithms: twice as long
is as bad as half.
"""
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from simulator.study.calibration.calibrate_table import FitKey

QUANTILES = np.arange(5, 100, 5)
PAIRED_WEIGHT = 0.1
PRIOR_WEIGHT = 0.01
LEAST_MS = 1e-9
NEVER = 10.0            # a request that does not end counts as this many times as long

Pairs = Mapping[str, tuple[np.ndarray, np.ndarray]]     # metric -> measured, simulated


def objective(data_sets: Iterable[Pairs], values: Mapping[str, float], fit: Mapping[str, FitKey]) -> float:
    """Return the objective."""
    parts = [float((quantile_residuals(pairs) ** 2).sum()) + PAIRED_WEIGHT * _paired(pairs) for pairs in data_sets]
    return sum(parts) / len(parts) + sum(
        PRIOR_WEIGHT * ((values[key] - each.prior) / each.prior_sd) ** 2
        for key, each in fit.items() if each.prior is not None)


def quantile_residuals(pairs: Pairs) -> np.ndarray:
    """Return the log ratios of quantiles, one metric after the other.

    The sum of their squares is the quantiles' part of the objective.
    """
    found = [np.log(np.percentile(sim, QUANTILES) / np.percentile(real, QUANTILES)) for real, sim in _known(pairs)]
    return np.concatenate(found) / np.sqrt(len(QUANTILES)) if found else np.zeros(len(QUANTILES))


def _paired(pairs: Pairs) -> float:
    return sum(float(np.mean(np.log(sim / real) ** 2)) for real, sim in _known(pairs))


def _known(pairs: Pairs) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield measured and simulated times of the requests that have them."""
    for measured, simulated in pairs.values():
        is_known = np.isfinite(measured) & (measured > 0.0)
        if is_known.any():
            real, sim = measured[is_known], simulated[is_known]
            yield real, np.maximum(np.where(np.isfinite(sim), sim, NEVER * real), LEAST_MS)
