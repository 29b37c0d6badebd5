"""The difference of two clocks: that of the log, and that of the metrics."""
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simulator.study.reconstruct.windows import Record

FARTHEST_S = 900.0
STEPS_S = (1.0, 0.02)           # of the search: over all, then around the best
NEAR = 1.05                     # of the least misfit: shifts within it are as good


class Skew(NamedTuple):
    """The clock of the log is ahead by `best_s`, between `low_s` and `high_s`.

    misfit : requests in another window.
    """

    best_s: float
    low_s: float
    high_s: float
    misfit: float


def windows_together(records: Sequence[Record]) -> tuple[np.ndarray, np.ndarray]:
    """Return windows that all instances have, and the arrivals in each."""
    edges: dict[tuple[float, float], list[int]] = {}
    for record in records:
        for window in record.windows:
            if window.arrived >= 0 and not window.has_restart:
                edges.setdefault((window.begin_s, window.end_s), []).append(window.arrived)
    whole = sorted((edge, sum(counts)) for edge, counts in edges.items() if len(counts) == len(records))
    return np.array([edge for edge, _ in whole]).reshape(-1, 2), np.array([count for _, count in whole])


def skew_of(records: Sequence[Record], arrival_s: np.ndarray) -> Skew | None:
    """Return the shift at which a log best fits; None: metrics count no requests."""
    edges, counts = windows_together(records)
    if not len(counts) or not counts.any():
        return None
    best_s, found = 0.0, []
    for step_s in STEPS_S:
        reach_s = FARTHEST_S if step_s == STEPS_S[0] else 2 * STEPS_S[0]
        shifts_s = best_s + np.arange(-reach_s, reach_s + step_s / 2, step_s)
        misfits = np.array([_misfit(edges + shift_s, counts, arrival_s) for shift_s in shifts_s])
        best_s = float(np.mean(shifts_s[misfits == misfits.min()]))
        found = shifts_s[misfits <= NEAR * misfits.min() + 1.0]
    return Skew(best_s, float(found.min()), float(found.max()), float(misfits.min()))


def _misfit(edges: np.ndarray, counts: np.ndarray, arrival_s: np.ndarray) -> float:
    places = np.searchsorted(arrival_s, edges)
    return float(np.abs(np.diff(places, axis=1)[:, 0] - counts).sum())
