"""Decisions of Dynamo's planner: throughput loop and load loop over one or two kinds of replicas, within a GPU budget.

Source: ai-dynamo 1.6.1 (PyPI), dynamo/planner/core: state_machine.py, throughput_scaling.py, load_scaling.py, the rules
restated. tests/parity/test_dynamo_planner.py compares recorded ticks.
"""
import math
from collections.abc import Sequence
from typing import NamedTuple

from simulator.scaling.dynamo.budget import HOLD, NO_BOUND, RECONCILE, Band

SCALE, NOT_READY, LOWER_BOUND = "scale", "model_not_ready", "set_lower_bound"
UP, DOWN, NO_CHANGE, CAPPED = "scale_up", "scale_down", "no_change", "scale_down_capped_by_throughput"
IN_PROGRESS, MISMATCH, NO_DATA = "scaling_in_progress", "worker_count_mismatch", "no_fpm_data"


class Replicas(NamedTuple):
    """Replicas of each kind.

    ready : replicas that serve.
    expected : replicas that there are to be.
    pending : replicas that start.
    is_starting : replicas of any kind start, and none stop.
    """

    ready: tuple[int, ...]
    expected: tuple[int, ...]
    pending: tuple[int, ...] = ()
    is_starting: bool = False

    @property
    def there(self) -> tuple[int, ...]:
        """Replicas that serve or start."""
        return tuple(map(sum, zip(self.ready, self.pending, strict=True)))


class Decision(NamedTuple):
    """Decision of a loop.

    counts : replicas of each kind, None for a kind that stays as it is; None in place of all: no decision.
    reason : Dynamo's word for it.
    """

    counts: tuple[int | None, ...] | None
    reason: str | None


class Core:
    """State of the planner.

    band : budget of GPUs.
    max_change : replicas of a kind that a decision of the throughput loop adds or removes, at most.
    has_throughput, has_load : loops that run; with both the throughput loop sets only a lower bound.
    """

    def __init__(self, band: Band, max_change: int, *, has_throughput: bool, has_load: bool):
        self.band, self.max_change = band, max_change
        self.has_throughput, self.has_load = has_throughput, has_load
        self.lower_bounds = (1,) * len(band.gpus)

    # ---- throughput loop

    def throughput(self, replicas: Replicas, demand_per_s: float, engine_per_s: Sequence[float | None]) -> Decision:
        """Return the decision for a predicted demand.

        engine_per_s : requests that a replica of each kind serves in a second; None or 0: not known, all stay.
        """
        ready, is_known = replicas.ready, all(engine_per_s)
        asked = ready if not is_known else tuple(math.ceil(demand_per_s / rate) for rate in engine_per_s)
        bounded = tuple(max(min(max(want, now - self.max_change), now + self.max_change), floor)
                        for want, now, floor in zip(asked, ready, self.band.floors, strict=True))
        fitted, is_held = self._below_ceiling(ready, bounded)
        if self.has_load:
            self.lower_bounds = fitted
            return Decision(None, LOWER_BOUND if is_known and not is_held else HOLD if is_known else NOT_READY)
        if replicas.is_starting:
            return self._fewer(replicas, bounded) if is_known else Decision(None, NOT_READY)
        counts, reason = self._within_budget(ready, fitted)
        if counts == ready:
            return Decision(None, (reason or (HOLD if is_held else NO_CHANGE)) if is_known else NOT_READY)
        return Decision(counts, SCALE if is_known else NOT_READY)

    def _below_ceiling(self, ready, counts):
        """Return counts below the upper bound alone, and whether it holds all kinds as they are."""
        band = self.band._replace(min_gpus=NO_BOUND)
        if len(ready) == 1:
            fitted, reason = band.guard(ready, counts)
            return fitted, reason == HOLD
        fitted = band.clamp(counts) if self._lacks_floor(ready) else band.fit(ready, counts)
        return fitted, fitted == ready != counts

    def _lacks_floor(self, ready):
        return any(now < floor for now, floor in zip(ready, self.band.floors, strict=True))

    def _within_budget(self, ready, counts):
        if len(ready) > 1 and self._lacks_floor(ready):
            return self.band.clamp(_at_least(counts, self.band.floors)), RECONCILE
        return self.band.guard(ready, counts)

    def _fewer(self, replicas, bounded):
        """Return the decision of the throughput loop while replicas start: only reductions of what there will be."""
        there = replicas.there
        if len(there) == 1:
            counts = self._within_budget(replicas.ready, bounded)[0] if bounded < there else there
        else:
            above_floor = self.band._replace(min_gpus=self.band.lowest, max_gpus=NO_BOUND)
            counts = above_floor.fit(there, tuple(map(min, zip(bounded, there, strict=True))))
        return _reductions(counts, there, SCALE, None)

    # ---- load loop

    def load(self, replicas: Replicas, loads: Sequence[Sequence[float]], verdicts: Sequence, *,
             is_whole: bool = False) -> Decision:
        """Return the decision for loads of the replicas.

        loads : of the replicas of each kind.
        verdicts : of each kind, a function of its loads and two keywords, `floor` and `may_stay`; see
            `load.Thresholds.verdict`.
        is_whole : the replicas serve whole requests: without a verdict they stay, whatever floor and budget are.
        """
        ready, floors = replicas.ready, self.band.floors
        if not any(loads):
            return Decision(None, NO_DATA)
        if not replicas.is_starting and replicas.ready != replicas.expected:
            return Decision(None, IN_PROGRESS)
        if any(found and len(found) != now for found, now in zip(loads, ready, strict=True)):
            return Decision(None, MISMATCH)
        found = tuple(verdict(each, floor=floor, may_stay=replicas.is_starting) if each else None
                      for verdict, each, floor in zip(verdicts, loads, floors, strict=True))
        if is_whole and found == (None,):
            return Decision(None, NO_CHANGE)
        asked = tuple(now if want is None else want for want, now in zip(found, ready, strict=True))
        lifted = _at_least(asked, self.lower_bounds) if self.has_throughput else asked
        if replicas.is_starting:
            return self._cancelled(replicas, found, lifted)
        target = _at_least(lifted, floors)
        if len(ready) > 1 and lifted != asked:
            target, _ = self._below_ceiling(ready, target)
        counts, reason = self._within_budget(ready, target)
        reason = reason or _reason(counts, ready, asked, lifted)
        if counts == ready and (len(ready) > 1 or found == (None,)):
            return Decision(None, reason)
        return Decision(counts, reason)

    def _cancelled(self, replicas, found, lifted):
        """Return the decision of the load loop while replicas start: only what loads, or the budget, call for."""
        ready, there = replicas.ready, replicas.there
        is_low = [want is not None and count <= now for want, count, now in zip(found, lifted, ready, strict=True)]
        last = NO_CHANGE if found[-1] is None else None
        if len(ready) > 1:
            return _reductions([count if low else most for low, count, most in zip(is_low, lifted, there, strict=True)],
                               there, DOWN, last)
        if lifted > ready:
            return Decision(None, None)
        counts, reason = self._within_budget(ready, lifted)
        if counts == ready and not is_low[0]:
            return Decision(None, last)
        return _reductions(counts, there, reason or DOWN, last)


def _reductions(counts, there, reason, otherwise):
    """Return a decision on the kinds that become fewer."""
    kept = tuple(count if count < most else None for count, most in zip(counts, there, strict=True))
    return Decision(kept, reason) if any(count is not None for count in kept) else Decision(None, otherwise)


def _reason(counts, ready, asked, lifted):
    """Return the reason of a decision of the load loop: of both kinds, the more urgent one."""
    found = []
    for count, now, want, bound in zip(counts, ready, asked, lifted, strict=True):
        is_capped = bound > want and want < now
        found.append(UP if count > now else CAPPED if is_capped else DOWN if count < now else NO_CHANGE)
    return min(found, key=(UP, CAPPED, DOWN, NO_CHANGE).index)


def _at_least(counts, floors):
    return tuple(map(max, zip(counts, floors, strict=True)))
