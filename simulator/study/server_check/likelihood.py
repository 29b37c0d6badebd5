"""The likelihood of measured numbers, by runs with several seeds and speeds."""
from typing import NamedTuple

import numpy as np

from simulator.study.server_check.features import FEATURES

DEGREES = 4.0                   # of Student's t: one number that no run explains does not decide alone
UNSEEN = 8.0                    # errors by which a number is off that a run lacks
MOST_OFF = 3.0                  # price errors, to both sides
ERRORS = np.array([feature.error for feature in FEATURES])


class Fit(NamedTuple):
    """Numbers of a hypothesis on their scales, float (len(FEATURES),) each.

    mean : at the prices as they are. slope : change by an error of all prices of one standard deviation. spread :
    standard deviation over seeds, and of a right model.
    """

    mean: np.ndarray
    slope: np.ndarray
    spread: np.ndarray

    @property
    def width(self) -> np.ndarray:
        """Standard deviation of the numbers of a server that is as the hypothesis says."""
        return np.hypot(self.slope, self.spread)


def speeds(count: int) -> np.ndarray:
    """Return errors of prices for runs, in standard deviations, evenly spread."""
    return np.linspace(-1.5, 1.5, count) if count > 1 else np.zeros(1)


def fit(numbers: np.ndarray, errors: np.ndarray, usual: "Fit | None" = None) -> Fit:
    """Return the fit of runs.

    Parameters
    ----------
    numbers : float (runs, len(FEATURES)). errors : float (runs,), of the prices of each run.
    usual : of the experiment as it is: its slopes are taken where one run was made, and half of its variance always.
    """
    known = ~np.isnan(numbers).any(axis=0)
    mean = np.where(known, np.nan_to_num(numbers).mean(axis=0), np.nan)
    if len(numbers) < 3:
        return usual._replace(mean=mean - usual.slope * errors.mean())
    slope = errors @ np.nan_to_num(numbers) / (errors @ errors)
    rest = np.nan_to_num(numbers) - np.nan_to_num(mean) - np.outer(errors, slope)
    variance = (rest**2).sum(axis=0) / (len(numbers) - 2)
    if usual is not None:
        variance = (variance + np.maximum(usual.spread**2 - ERRORS**2, 0.0)) / 2
    return Fit(mean, np.where(known, slope, 0.0), np.sqrt(variance * (1 + 1 / len(numbers)) + ERRORS**2))


def log_likelihood(measured: np.ndarray, found: Fit) -> float:
    """Return the log-likelihood of measured numbers over all errors of prices."""
    shown = ~np.isnan(measured)
    grid = np.linspace(-MOST_OFF, MOST_OFF, 25)
    off = (measured - found.mean)[shown] - np.outer(grid, found.slope[shown])
    off = np.where(np.isnan(off), UNSEEN * found.spread[shown], off) / found.spread[shown]
    terms = -(DEGREES + 1) / 2 * np.log1p(off**2 / DEGREES) - np.log(found.spread[shown])
    sums = terms.sum(axis=1) - grid**2 / 2
    top = sums.max()
    return float(top + np.log(np.exp(sums - top).sum() / len(grid)))
