"""A fit to iterations: prices of `linear` by least squares of relative errors, and the gap between iterations.

`linear` takes base + prices x counts, so that prices are the non-negative least squares (NNLS) of counts divided by
durations against 1: errors are relative, short and long iterations count alike. Then once more with Huber's weights:
an error above 1.345 robust standard deviations counts by its distance, not by its square (Huber 1964; 1.345
is 95 % efficient where errors are normal). `latency.host.iteration_us` is the median gap between the end of an
iteration and the begin of the next.
"""
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from simulator.config.load import plain
from simulator.errors import InputErrors, MissingExtra
from simulator.study.calibration.calibrate_table import FitKey
from simulator.study.calibration.data import US_PER_S, Steps

INSTALL = "pip install 'simulator[fit]'"
LINEAR = "linear"
# Key of `linear` -> the column of steps.csv that it is the price of; None: of the iteration itself.
COUNTED = {"base_us": None, "per_sequence_us": "num_sequences", "per_prefill_token_us": "prefill_tokens",
           "per_decode_token_us": "decode_tokens", "per_context_token_us": "context_tokens"}
PRICES = {f"latency.{name}": column for name, column in COUNTED.items()}
GAP = "latency.host.iteration_us"
HUBER, MAD_TO_SD = 1.345, 1.4826


class Problem(NamedTuple):
    """Iterations as rows of a least squares problem.

    counts : float64 (n, k), for each fitted price. rest_us : (n,), time of the other prices. duration_us : (n,).
    lows, highs, priors, prior_sds : (k,), us; NaN: no prior.
    """

    counts: np.ndarray
    rest_us: np.ndarray
    duration_us: np.ndarray
    lows: np.ndarray
    highs: np.ndarray
    priors: np.ndarray
    prior_sds: np.ndarray

    def rows(self, chosen: np.ndarray) -> "Problem":
        """Return the problem with some of its iterations."""
        return self._replace(counts=self.counts[chosen], rest_us=self.rest_us[chosen],
                             duration_us=self.duration_us[chosen])

    def relative_errors(self, prices: np.ndarray) -> np.ndarray:
        """Return measured less predicted, over measured, of each iteration."""
        return 1.0 - (self.rest_us + self.counts @ prices) / self.duration_us


def is_fitted_to_steps(key: str) -> bool:
    """Return whether a key can be fitted to iterations."""
    return key in PRICES or key == GAP


def prices_in(experiment) -> dict[str, float]:
    """Return the prices of an experiment, us, by key."""
    table = plain(experiment)["latency"]
    return {key: float(table[key.rpartition(".")[2]]) for key in PRICES}


def predicted_us(steps: Steps, prices: Mapping[str, float]) -> np.ndarray:
    """Return the durations of iterations at these prices.

    NaN where a count with a price was not measured.
    """
    total = np.zeros(steps.num_steps)
    for key, column in PRICES.items():
        if prices[key]:
            total += prices[key] * _counts(steps, column)
    return total


def problem_of(steps: list[tuple[Steps, Mapping[str, float]]], fit: Mapping[str, FitKey]) -> Problem:
    """Return the least squares problem of iterations for the fitted prices.

    Parameters
    ----------
    steps : iterations, and the prices of their experiment. fit : of prices; other prices stay.

    Raises
    ------
    InputErrors
        A count that a price needs was not measured.
    """
    chosen = [(each, prices, ~each.is_held) for each, prices in steps]
    counts = np.concatenate([np.stack([_counts(each, PRICES[key]) for key in fit], axis=1)[rows]
                             for each, _, rows in chosen])
    rest = np.concatenate([predicted_us(each, {**prices, **dict.fromkeys(fit, 0.0)})[rows]
                           for each, prices, rows in chosen])
    lacking = [key for i, key in enumerate(fit) if np.isnan(counts[:, i]).any()]
    if lacking or np.isnan(rest).any():
        raise InputErrors([
            f"{steps[0][0].path}: {PRICES[key]}: not measured, which {key} is the price of" for key in lacking] or [
            f"{steps[0][0].path}: counts that the prices of the experiment need were not measured"])
    return Problem(
        counts, rest, np.concatenate([each.duration_us[rows] for each, _, rows in chosen]),
        *(np.array([np.nan if getattr(each, name) is None else getattr(each, name) for each in fit.values()])
          for name in ("min", "max", "prior", "prior_sd")))


def solved(problem: Problem, has_huber: bool = True) -> np.ndarray:
    """Return the prices, us, within their bounds.

    A prior counts as one more row: its distance in standard deviations, times that of the relative errors.
    """
    weights = np.ones(len(problem.duration_us))
    prices = _least_squares(problem, weights, 0.0)
    spread = float(np.sqrt(np.mean(problem.relative_errors(prices) ** 2)))
    if np.isfinite(problem.priors).any():
        prices = _least_squares(problem, weights, spread)
    if has_huber:
        errors = problem.relative_errors(prices)
        limit = HUBER * MAD_TO_SD * float(np.median(np.abs(errors - np.median(errors))))
        if limit > 0.0:
            weights = np.sqrt(np.minimum(1.0, limit / np.maximum(np.abs(errors), limit)))
            prices = _least_squares(problem, weights, spread)
    return prices


def gaps_us(steps: Steps) -> np.ndarray:
    """Return the time from each iteration's end to the next one's start; NaN: unknown."""
    starts, ends = steps.columns["start_s"], steps.columns["start_s"] + steps.columns["duration_s"]
    return US_PER_S * np.append(starts[1:] - ends[:-1], np.nan)


def gap_us(gaps: np.ndarray, bounds: FitKey) -> float:
    """Return the median gap, within its bounds.

    Raises
    ------
    InputErrors
        No gap is known.
    """
    known = gaps[np.isfinite(gaps)]
    if not len(known):
        raise InputErrors([f"study.fit: {GAP}: iterations have no times, so that nothing says what lies between them"])
    return float(np.clip(np.median(known), bounds.min, bounds.max))


def _counts(steps: Steps, column: str | None) -> np.ndarray:
    return np.ones(steps.num_steps) if column is None else steps.columns[column]


def _least_squares(problem: Problem, weights: np.ndarray, spread: float) -> np.ndarray:
    """Return the bounded least squares; columns have their scale taken out, rows are reduced to a triangle first."""
    optimize = scipy_optimize()
    scaled = (weights / problem.duration_us)[:, None] * problem.counts
    targets = weights * (1.0 - problem.rest_us / problem.duration_us)
    has_prior = np.isfinite(problem.priors) & (spread > 0.0)
    rows = np.diag(spread / np.where(has_prior, problem.prior_sds, 1.0))[has_prior]
    scaled = np.concatenate([scaled, rows])
    targets = np.concatenate([targets, rows @ np.where(has_prior, problem.priors, 0.0)])
    sizes = np.sqrt((scaled ** 2).sum(axis=0))
    sizes[sizes == 0.0] = 1.0
    whole, triangle = np.linalg.qr(scaled / sizes)
    found = optimize.lsq_linear(triangle, whole.T @ targets, (problem.lows * sizes, problem.highs * sizes),
                                method="bvls", tol=1e-14)
    return np.clip(found.x / sizes, problem.lows, problem.highs)


def scipy_optimize():
    """Return scipy.optimize.

    Raises
    ------
    MissingExtra
        SciPy is not installed.
    """
    try:
        from scipy import optimize  # of the extra, and 200 ms that no other command needs
    except ImportError:
        raise MissingExtra([f"calibrate needs SciPy to fit: {INSTALL}; --no-fit only compares"]) from None
    return optimize
