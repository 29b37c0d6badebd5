"""The zone of measured iterations: where counts are like measured ones, and how fast trust ends beyond them.

Each axis has knots in steps of a factor of two, from a quarter of the least positive count that was measured to four
times the largest. A knot has weight 1 if an iteration was measured in a cell that touches it; else the weight falls
with the distance to such a knot, in factors of two, to 0 at a distance of `REACH`.
"""
import numpy as np

from simulator.domain.step_table import Zone

REACH = 2       # factors of two


def zone_of(counts: np.ndarray) -> Zone:
    """Return the zone of measured iterations.

    counts : float64 (n, 3), of `step_table.AXES`.
    """
    knots = [axis_knots(axis) for axis in counts.T]
    weights = np.zeros([len(each) for each in knots])
    cells = [np.clip(np.searchsorted(each, axis, side="right") - 1, 0, len(each) - 2)
             for each, axis in zip(knots, counts.T, strict=True)]
    on_knot = [axis == each[left] for each, left, axis in zip(knots, cells, counts.T, strict=True)]
    for corner in np.ndindex(2, 2, 2):
        touched = np.ones(len(counts), bool)
        for end, is_on in zip(corner, on_knot, strict=True):
            if end:
                touched &= ~is_on           # on a knot, the cell beyond was not measured
        weights[tuple(left[touched] + end for left, end in zip(cells, corner, strict=True))] = 1.0
    for axis in range(3):
        weights = spread(weights, axis)
    return Zone(tuple(tuple(each.tolist()) for each in knots), tuple(weights.ravel().tolist()))


def axis_knots(counts: np.ndarray) -> np.ndarray:
    """Return the knots of an axis: 0, and steps of a factor of two."""
    positive = counts[counts > 0]
    if not len(positive):
        return np.array([0.0, 1.0, 2.0])
    least, most = float(positive.min()), float(positive.max())
    doublings = int(np.ceil(np.log2(most / least))) if most > least else 0
    inner = least * 2.0 ** np.arange(-REACH, doublings)
    beyond = most * 2.0 ** np.arange(0, REACH + 1)
    knots = np.concatenate([[0.0], inner[inner >= 1.0], beyond])
    return np.unique(knots)


def spread(weights: np.ndarray, axis: int) -> np.ndarray:
    """Return weights that fall by 1 / REACH for each knot of distance along an axis."""
    found = weights.copy()
    for distance in range(1, REACH + 1):
        loss = distance / REACH
        for sign in (1, -1):
            moved = np.roll(weights, sign * distance, axis)
            edge = [slice(None)] * 3
            edge[axis] = slice(None, distance) if sign > 0 else slice(-distance, None)
            moved[tuple(edge)] = 0.0
            found = np.maximum(found, np.maximum(moved - loss, 0.0))
    return found
