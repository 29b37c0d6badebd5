"""Accelerator time by activity, counted during a run: the basis of energy."""
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from simulator.domain.costs import HOURS
from simulator.domain.window import Window

PREFILL, DECODE, OTHER = range(3)
HOUR_NS = 3_600 * 10**9


class Metered(NamedTuple):
    """The meter's facts about a pool.

    places : rows of `Run.replicas` that it has, which are numbered pool by pool.
    stage_accelerators : accelerators that work while one pipeline stage does.
    phase_ns : takes rows of `records.ITERATION`, returns the times of prompts and decodes in each, two arrays; None:
        the latency backend does not separate them.
    """

    places: int
    stage_accelerators: int
    phase_ns: Callable | None = None


class PowerMeter:
    """Adds up accelerator time by replica, phase and hour of the day.

    An iteration that computes prompts and decodes is shared between the two as their predicted times are, and counts as
    one of prompts where the backend does not separate them. An iteration without either is OTHER.

    Parameters
    ----------
    pools : in order.
    starts_at_hour : of the day, at simulated time 0; None: all hours are one.
    is_of_window : only a part of the run will be read: times are kept piece by piece until then.
    """

    def __init__(self, pools: tuple[Metered, ...], starts_at_hour: int | None = None, is_of_window: bool = False):
        self._kept = [] if is_of_window else None
        self._pools, self._starts_at_hour = pools, starts_at_hour
        self._pool_of = np.repeat(np.arange(len(pools)), [pool.places for pool in pools])
        self._accelerators = np.array([pool.stage_accelerators for pool in pools], np.int64)[self._pool_of]
        self.active_ns = np.zeros((len(self._pool_of), 3, 1 if starts_at_hour is None else HOURS), np.int64)

    def append(self, rows: np.ndarray) -> None:
        """Take rows of `records.ITERATION`; their memory may be used again."""
        has_prefill, has_decode = rows["prefill_tokens"] > 0, rows["decode_tokens"] > 0
        total_ns = rows["duration_ns"].astype(np.int64)
        prefill_ns = np.where(has_prefill, total_ns, 0)
        mixed = has_prefill & has_decode
        for number, pool in enumerate(self._pools):
            if pool.phase_ns is not None:
                own = np.flatnonzero(mixed & (self._pool_of[rows["replica"]] == number))
                prompts, decodes = pool.phase_ns(rows[own])
                both = prompts + decodes
                share = np.divide(prompts, both, out=np.ones(len(own)), where=both > 0)
                prefill_ns[own] = np.rint(total_ns[own] * share)
        rest = np.where(has_prefill | has_decode, DECODE, OTHER)
        self._add(rows, PREFILL, rows["begin_ns"], prefill_ns)
        self._add(rows, rest, rows["begin_ns"] + prefill_ns, total_ns - prefill_ns)

    def within(self, window: Window | None) -> np.ndarray:
        """Return accelerator time by replica, phase and hour, in ns.

        window : counted part; None: the whole run. To be called once.
        """
        for replica, phase, begin_ns, end_ns in self._kept or ():
            if window is not None:
                begin_ns, end_ns = window.clipped(begin_ns), window.clipped(end_ns)
            self._count(replica, phase, begin_ns, end_ns - begin_ns)
        self._kept = None
        return self.active_ns

    def _add(self, rows: np.ndarray, phase: np.ndarray | int, begin_ns: np.ndarray, duration_ns: np.ndarray) -> None:
        if self._kept is None:
            self._count(rows["replica"], phase, begin_ns, duration_ns)
            return
        some = np.flatnonzero(duration_ns)
        begin_ns, phase = begin_ns[some], np.broadcast_to(phase, len(rows))[some].astype(np.int8)
        self._kept.append((rows["replica"][some], phase, begin_ns, begin_ns + duration_ns[some]))

    def _count(self, replica: np.ndarray, phase: np.ndarray | int, begin_ns: np.ndarray,
               duration_ns: np.ndarray) -> None:
        weight = self._accelerators[replica]
        if self._starts_at_hour is None:
            np.add.at(self.active_ns, (replica, phase, 0), duration_ns * weight)
            return
        hour, into_ns = np.divmod(begin_ns + self._starts_at_hour * HOUR_NS, HOUR_NS)
        within = into_ns + duration_ns <= HOUR_NS
        np.add.at(self.active_ns, (replica, phase, hour % HOURS), np.where(within, duration_ns * weight, 0))
        phases = np.broadcast_to(phase, len(replica))
        for row in np.flatnonzero(~within):             # few: an hour ends while it runs
            by_hour = time_by_hour(begin_ns[row:row + 1], begin_ns[row:row + 1] + duration_ns[row:row + 1],
                                   self._starts_at_hour)
            self.active_ns[replica[row], phases[row]] += by_hour[0] * weight[row]


def time_by_hour(begin_ns: np.ndarray, end_ns: np.ndarray, starts_at_hour: int | None) -> np.ndarray:
    """Return the part of each interval in each hour of the day.

    starts_at_hour : as in `PowerMeter`.

    Returns
    -------
    int64 (intervals, hours), in ns.
    """
    if starts_at_hour is None:
        return (end_ns - begin_ns)[:, None]

    def until(time_ns: np.ndarray) -> np.ndarray:
        days, rest_ns = np.divmod(time_ns + starts_at_hour * HOUR_NS, HOURS * HOUR_NS)
        return days[:, None] * HOUR_NS + np.clip(rest_ns[:, None] - np.arange(HOURS) * HOUR_NS, 0, HOUR_NS)

    return until(end_ns) - until(begin_ns)
