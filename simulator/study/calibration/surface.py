"""A better fit to requests: planes through the residuals of many simulations, and the least point on each.

A request more or less that is ready when an iteration begins changes times by leaps, so that the objective has many
small valleys, and slopes from two simulations are noisy. A plane through some dozens of simulations averages the leaps
out: each round draws values around the best so far, adds those of earlier rounds that lie near, and takes the least
on the plane, in twice the box that was drawn from; the box halves from round to round. The objective decides which
of the values is best.
"""
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from simulator.study.calibration.calibrate_table import FitKey
from simulator.study.calibration.newton import reach_of, step

ROUNDS = 5
SEEN = 0.1              # the first box reaches to where a key changes the quantiles of a metric by a tenth
NEAR = 2.0              # boxes: distance within which earlier simulations count


class _Point(NamedTuple):
    values: np.ndarray
    residuals: np.ndarray


def improved(residuals_at: Callable[[dict[str, float]], np.ndarray], evaluate: Callable[[dict[str, float]], float],
             values: dict[str, float], fit: Mapping[str, FitKey], draw: np.random.Generator) -> dict[str, float]:
    """Return values with an objective that is no larger.

    Parameters
    ----------
    residuals_at : float64 (n,), of values. evaluate : the objective. draw : generator for the values around.
    """
    best, points = evaluate(values), []

    def look(at: np.ndarray) -> None:
        points.append(_Point(at, residuals_at(dict(zip(fit, at.tolist(), strict=True)))))

    look(np.array(list(values.values())))
    box = reach_of(residuals_at, values, fit, SEEN)
    for _ in range(ROUNDS):
        centre = np.array(list(values.values()))
        for at in around(centre, box, fit, draw):
            look(at)
        near = [each for each in points if (np.abs(each.values - centre) <= NEAR * box).all()]
        at_centre, slopes = plane(np.array([each.values for each in near]) - centre,
                                  np.array([each.residuals for each in near]), box)
        reach = {key: _within(each, low, high) for (key, each), low, high in zip(
            fit.items(), centre - NEAR * box, centre + NEAR * box, strict=True)}
        stepped = step(at_centre, slopes, values, reach)
        found = evaluate(stepped)
        look(np.array(list(stepped.values())))
        if found < best:
            best, values = found, stepped
        box = box / 2
    return values


def around(centre: np.ndarray, box: np.ndarray, fit: Mapping[str, FitKey],
           draw: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield values drawn from a box around others, within their bounds.

    Two for each key, and four more.
    """
    lows, highs = (np.array([getattr(each, name) for each in fit.values()]) for name in ("min", "max"))
    for _ in range(2 * len(fit) + 4):
        yield np.clip(centre + box * draw.uniform(-1.0, 1.0, len(fit)), lows, highs)


def plane(moved: np.ndarray, found: np.ndarray, box: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a plane through residuals, by least squares.

    Its value where nothing is moved, (n,), and its slopes, (n, k).

    Parameters
    ----------
    moved : float64 (p, k), distances. found : (p, n), residuals there. box : (k,), scale of the moves.
    """
    design = np.column_stack([np.ones(len(moved)), moved / box])
    fitted, *_ = np.linalg.lstsq(design, found, rcond=None)
    return fitted[0], fitted[1:].T / box


def _within(bounds: FitKey, low: float, high: float) -> FitKey:
    return FitKey(min=max(bounds.min, low), max=min(bounds.max, high), prior=bounds.prior, prior_sd=bounds.prior_sd)
