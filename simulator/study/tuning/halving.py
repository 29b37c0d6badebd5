"""Successive halving: the candidates of each round, and their number of requests.

All candidates run with a few requests, the best third with three times as many, and so on; a candidate with an
interval that overlaps the last of the third goes on, too. 27 candidates cost 27 x 1 + 9 x 3 + 3 x 9 + 1 x 27 = 108
units, all at 27 units 729. Source: Jamieson and Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter
Optimization, AISTATS 2016, with eta = 3.
"""
import numpy as np

ETA = 3


def rungs(num_candidates: int, first: int, most: int) -> list[int]:
    """Return the requests of each round.

    Parameters
    ----------
    num_candidates : in the first round.
    first, most : requests of the first round, and of the last at most.
    """
    counts = [min(first, most)]
    while num_candidates > 1 and counts[-1] < most:
        num_candidates = -(-num_candidates // ETA)
        counts.append(min(counts[-1] * ETA, most))
    return counts


def survivors(scores: np.ndarray, half_widths: np.ndarray, count: int | None = None) -> np.ndarray:
    """Return the candidates that go on: the best third, and overlapping ones.

    A third is rounded up; a candidate overlaps if its interval reaches into the third.

    Parameters
    ----------
    scores : float64 (candidates,), larger is better; NaN: out of the race.
    half_widths : float64 (candidates,), of their intervals; NaN: not known, as 0.
    count : candidates that go on regardless of intervals; None: a third of all in the race.

    Returns
    -------
    np.ndarray
        int64 indices, the best first, equal candidates in their order.
    """
    runs = np.flatnonzero(~np.isnan(scores))
    if not len(runs):
        return runs
    order = runs[np.argsort(-scores[runs], kind="stable")]
    widths = np.nan_to_num(half_widths)
    count = min(-(-len(order) // ETA) if count is None else count, len(order))
    last = order[count - 1]
    floor = scores[last] - widths[last]
    return np.array([i for rank, i in enumerate(order) if rank < count or scores[i] + widths[i] >= floor],
                    dtype=np.int64)
