"""A residual fitted to iterations: how measured times follow from those of a latency model and from counts.

The time is S x prior + C + a(prompt tokens) + b(sequences) + c(tokens in KV), piecewise linear and never falling: sums
of ramps with non-negative factors, which non-negative least squares (NNLS) finds. Errors are relative to the predicted
time, so that short and long iterations count alike and the mean is met; Huber's weights hold outliers down (as in
`steps`).
Two small penalties decide where data do not: `TRUST` iterations in which the prior is right, and for a stiff fit the
difference of neighbouring slopes. Stiffness infinite: straight lines.
"""
import math
from typing import NamedTuple

import numpy as np

from simulator.domain.step_table import Curve
from simulator.study.calibration.steps import HUBER, MAD_TO_SD, scipy_optimize

TRUST = 5.0                     # iterations
MOST_KNOTS = 8                  # of an axis
LEAST_STEP = 1.5                     # least ratio of neighbouring knots
PASSES = 4                      # the first weighs by measured times, since nothing is predicted yet
STRAIGHT = math.inf
RIDGE = 1e-12


class Form(NamedTuple):
    """The time of iterations, given their prior.

    scale : factor on the prior. constant_us. curves : time added by each count.
    """

    scale: float
    constant_us: float
    curves: tuple[Curve, Curve, Curve]


def fitted(prior_us: np.ndarray, counts: np.ndarray, duration_us: np.ndarray, stiffness: float) -> Form:
    """Return the form nearest to measured durations.

    Parameters
    ----------
    prior_us, duration_us : float64 (n,). counts : float64 (n, 3). stiffness : penalty on bends, 0 to `STRAIGHT`.
    """
    knots = [straight(axis) if math.isinf(stiffness) else bent(axis) for axis in counts.T]
    columns = [prior_us[:, None], np.ones((len(prior_us), 1)),
               *(ramps(axis, each) for axis, each in zip(counts.T, knots, strict=True))]
    design = np.hstack(columns)
    penalty, target = _penalties(design, duration_us, knots, stiffness)
    factors = _nnls(design, duration_us, duration_us, np.ones(len(duration_us)), penalty, target)
    for _ in range(PASSES - 1):
        predicted_us = np.maximum(design @ factors, 1e-3 * duration_us)
        errors = duration_us / predicted_us - 1.0
        limit = HUBER * MAD_TO_SD * float(np.median(np.abs(errors - np.median(errors))))
        weights = np.minimum(1.0, limit / np.maximum(np.abs(errors), limit)) if limit > 0.0 else np.ones(len(errors))
        factors = _nnls(design, duration_us, predicted_us, weights, penalty, target)
    return _form(factors, knots)


def straight(counts: np.ndarray) -> np.ndarray:
    """Return the knots of a straight line."""
    return np.array([0.0, max(float(counts.max()), 1.0)])


def bent(counts: np.ndarray) -> np.ndarray:
    """Return the knots of a curve: 0, and quantiles with a distance between them."""
    positive = counts[counts > 0]
    if not len(positive):
        return straight(counts)
    kept = [0.0]
    for each in np.quantile(positive, np.linspace(0.0, 1.0, MOST_KNOTS)).tolist():
        if len(kept) == 1 or each >= LEAST_STEP * kept[-1]:
            kept.append(each)
    if len(kept) > 2:
        kept[-1] = float(positive.max())
    return np.array(kept)


def ramps(counts: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return the part of counts in each piece, (n, knots - 1); the last is open."""
    found = np.clip(counts[:, None] - knots[:-1], 0.0, np.diff(knots))
    found[:, -1] = np.maximum(counts - knots[-2], 0.0)
    return found


def _penalties(design: np.ndarray, duration_us: np.ndarray, knots: list[np.ndarray],
               stiffness: float) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of least squares and their targets: trust in the prior, and stiff curves."""
    relative = (design / duration_us[:, None]).mean(axis=0)
    rows, first = [np.diag(np.sqrt(TRUST) * np.where(np.arange(len(relative)) == 0, 1.0, relative))], 2
    for each in knots:
        pieces = len(each) - 1
        if pieces > 1:
            bends = np.zeros((pieces - 1, len(relative)))
            place = np.arange(pieces - 1)
            bends[place, first + place], bends[place, first + place + 1] = 1.0, -1.0
            size = design[:, first:first + pieces].sum(axis=1) / duration_us
            rows.append(stiffness * np.sqrt(len(duration_us)) * size.mean() * bends)
        first += pieces
    penalty = np.vstack(rows)
    target = np.zeros(len(penalty))
    target[0] = np.sqrt(TRUST)
    return penalty, target


def _nnls(design: np.ndarray, duration_us: np.ndarray, scale_us: np.ndarray, weights: np.ndarray,
          penalty: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return non-negative factors; only products of the rows count, so that many iterations are as quick as few."""
    rows = design / scale_us[:, None]
    gram = rows.T @ (weights[:, None] * rows) + penalty.T @ penalty
    right = rows.T @ (weights * duration_us / scale_us) + penalty.T @ target
    size = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    lower = np.linalg.cholesky(gram / np.outer(size, size) + RIDGE * np.eye(len(size)))
    return scipy_optimize().nnls(lower.T, np.linalg.solve(lower, right / size))[0] / size


def _form(factors: np.ndarray, knots: list[np.ndarray]) -> Form:
    curves, first = [], 2
    for each in knots:
        slopes = factors[first:first + len(each) - 1]
        added = np.concatenate([[0.0], np.cumsum(slopes * np.diff(each))])
        curves.append(Curve(tuple(each.tolist()), tuple(added.tolist())))
        first += len(slopes)
    return Form(float(factors[0]), float(factors[1]), tuple(curves))
