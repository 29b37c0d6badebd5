"""The difference of two clocks: that of the log, and that of the metrics.

A log of another time zone, or with a clock that begins at 0, has a large one. Requests that came in each window decide;
where the metrics do not count requests (lines of statistics), prompt tokens do.
"""
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simulator.study.reconstruct.access_log import Requests
from simulator.study.reconstruct.windows import Record

DAY_S = 86400.0
FARTHEST_S = 14 * 3600.0        # of time zones
STEPS_S = (5.0, 1.0, 0.02)      # of the search: over all, then around the best
NEAR = 1.05                     # of the least misfit: shifts within it are as good


class Skew(NamedTuple):
    """The clock of the log is ahead by `best_s`, between `low_s` and `high_s`.

    misfit : requests, or tokens, in another window.
    """

    best_s: float
    low_s: float
    high_s: float
    misfit: float


def windows_together(records: Sequence[Record], of_tokens: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return windows that all instances have, and the arrivals in each.

    of_tokens : prompt tokens in place of arrivals.
    """
    edges: dict[tuple[float, float], list[float]] = {}
    for record in records:
        for window in record.windows:
            if (of_tokens or window.arrived >= 0) and not window.has_restart:
                count = window.prompts.total if of_tokens else window.arrived
                edges.setdefault((window.begin_s, window.end_s), []).append(count)
    whole = sorted((edge, sum(counts)) for edge, counts in edges.items() if len(counts) == len(records))
    return np.array([edge for edge, _ in whole]).reshape(-1, 2), np.array([count for _, count in whole])


def skew_of(records: Sequence[Record], log: Requests) -> Skew | None:
    """Return the shift at which a log best fits; None: metrics count nothing."""
    edges, counts = windows_together(records)
    weights = np.ones(len(log))
    if not len(counts) or not counts.any():
        edges, counts = windows_together(records, of_tokens=True)
        weights = np.maximum(log.prompt_tokens, 0)
    if not len(counts) or not counts.any():
        return None
    total = np.r_[0.0, np.cumsum(weights)]
    offset_s = float(log.arrival_s[0] - edges[0, 0])
    best_s, found, misfits = offset_s if abs(offset_s) > DAY_S else 0.0, np.zeros(1), np.zeros(1)
    reach_s = FARTHEST_S
    for step_s in STEPS_S:
        shifts_s = best_s + np.arange(-reach_s, reach_s + step_s / 2, step_s)
        misfits = np.array([_misfit(edges + shift_s, counts, log.arrival_s, total) for shift_s in shifts_s])
        best_s = float(np.mean(shifts_s[misfits == misfits.min()]))
        found, reach_s = shifts_s[misfits <= NEAR * misfits.min() + 1.0], 2 * step_s
    return Skew(best_s, float(found.min()), float(found.max()), float(misfits.min()))


def _misfit(edges: np.ndarray, counts: np.ndarray, arrival_s: np.ndarray, total: np.ndarray) -> float:
    places = np.searchsorted(arrival_s, edges)
    return float(np.abs(total[places[:, 1]] - total[places[:, 0]] - counts).sum())
