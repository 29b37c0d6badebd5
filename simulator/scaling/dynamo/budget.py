"""GPU budgets of Dynamo's planner: how many replicas of one or two kinds fit between two bounds.

Source: ai-dynamo 1.6.1 (PyPI), dynamo/planner/core/budget.py, its rules restated. tests/parity/test_dynamo_planner.py
compares recorded calls of its five functions.
"""
from typing import NamedTuple

HOLD, RECONCILE = "gpu_budget_guard_hold", "gpu_budget_reconcile"
NO_BOUND = -1


class Band(NamedTuple):
    """Bounds on the GPUs of all replicas.

    min_gpus, max_gpus : bounds, each `NO_BOUND` if it does not apply.
    gpus : GPUs of a replica of each kind; prefill before decode.
    floors : replicas of each kind, at least.
    """

    min_gpus: int
    max_gpus: int
    gpus: tuple[int, ...]
    floors: tuple[int, ...]

    def total(self, counts: tuple[int, ...]) -> int:
        """Return the GPUs of as many replicas."""
        return sum(count * gpus for count, gpus in zip(counts, self.gpus, strict=True))

    @property
    def lowest(self) -> int:
        """Least total that is accepted.

        With both bounds the largest replica may be missing, as whole replicas need not add up to the lower bound.
        """
        return self.min_gpus - (max(self.gpus) if self.max_gpus >= 0 else 0) if self.min_gpus >= 0 else 0

    def is_above(self, total: int) -> bool:
        """Return whether a total exceeds the upper bound."""
        return 0 <= self.max_gpus < total

    def holds(self, counts: tuple[int, ...]) -> bool:
        """Return whether the GPUs of as many replicas lie within the bounds."""
        return not self.is_above(self.total(counts)) and self.total(counts) >= self.lowest

    def clamp(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """Return counts within the bounds, in proportion to the given ones.

        The first kind is rounded, the second gets the rest. Not even the floors fit: no replica of any kind.
        """
        if self.holds(counts):
            return counts
        if not self.is_above(self.total(counts)):
            return self._grown(counts)
        if self.total(self.floors) > self.max_gpus:
            return (0,) * len(counts)
        first, *others = self.gpus
        most = (self.max_gpus - sum(gpus * floor for gpus, floor in zip(others, self.floors[1:], strict=True))) // first
        share = int(counts[0] * (self.max_gpus / self.total(counts))) if others else most
        return self._with_rest(max(self.floors[0], min(most, share)), self.max_gpus, round_up=False)

    def _grown(self, counts):
        """Return counts that reach the lower bound; the given ones where two kinds would exceed the upper bound."""
        total, first = self.total(counts), self.gpus[0]
        if len(counts) == 1:
            return (max(self.floors[0], _ceil(self.min_gpus, first)),)
        share = _ceil(self.min_gpus / 2, first) if total <= 0 else _ceil(counts[0] * (self.min_gpus / total), 1)
        grown = self._with_rest(max(self.floors[0], share), self.min_gpus, round_up=True)
        return counts if self.is_above(self.total(grown)) else grown

    def _with_rest(self, count, total, round_up):
        """Return a count of the first kind, and as many of the second as the rest of the GPUs pays."""
        if len(self.gpus) == 1:
            return (count,)
        rest = max(total - count * self.gpus[0], 0) if round_up else total - count * self.gpus[0]
        return count, max(self.floors[1], _ceil(rest, self.gpus[1]) if round_up else rest // self.gpus[1])

    def fit(self, current: tuple[int, int], proposed: tuple[int, int]) -> tuple[int, int]:
        """Return the counts within the bounds nearest to a proposal.

        No count lies beyond the proposal, or on its other side.
        Where one kind grows and the other shrinks, both change or none. Of counts as near, changes closest to the
        proportion of the proposal are taken, then the largest changes, then the fewest replicas of the first kind.
        """
        if all(count >= floor for count, floor in zip(proposed, self.floors, strict=True)) and self.holds(proposed):
            return proposed
        ranges = [range(max(min(pair), floor), max(pair) + 1)
                  for pair, floor in zip(zip(current, proposed, strict=True), self.floors, strict=True)]
        asked = [abs(want - now) for want, now in zip(proposed, current, strict=True)]
        opposing = is_opposing(current, proposed)
        found = []
        for counts in ((one, two) for one in ranges[0] for two in ranges[1]):
            moved = [abs(count - now) for count, now in zip(counts, current, strict=True)]
            if self.holds(counts) and not (opposing and (moved[0] > 0) != (moved[1] > 0)):
                distance = sum(abs(want - count) for want, count in zip(proposed, counts, strict=True))
                found.append((distance, abs(moved[0] * asked[1] - moved[1] * asked[0]), -sum(moved), counts))
        return min(found)[-1] if found else current

    def guard(self, current: tuple[int, ...], proposed: tuple[int, ...]) -> tuple[tuple[int, ...], str | None]:
        """Return counts in place of a proposal, and `HOLD`, `RECONCILE` or None.

        Counts outside the bounds are brought back, without regard to the proposal. At a bound a proposal that leads
        beyond the bound is held, unless one kind grows and the other shrinks. Any other proposal is clamped, and held
        if the clamp reverses a direction.
        """
        total = self.total(current)
        if not self.holds(current):
            return self.clamp(current), RECONCILE
        grows, shrinks = (any(sign * (want - now) > 0 for want, now in zip(proposed, current, strict=True))
                          for sign in (1, -1))
        at_floor, at_ceiling = self.min_gpus >= 0 and total <= self.min_gpus, 0 <= self.max_gpus <= total
        if (at_floor and shrinks and not grows) or (at_ceiling and grows and not shrinks):
            return current, HOLD
        if grows and shrinks and (at_floor or at_ceiling):
            fitted = self.fit(current, proposed)
            return fitted, HOLD if fitted == current else None
        clamped = self.clamp(proposed)
        within = all(min(now, want) <= count <= max(now, want)
                     for now, want, count in zip(current, proposed, clamped, strict=True))
        if not within or (len(current) > 1 and not self.holds(clamped)):
            return current, HOLD
        return clamped, None


def is_opposing(current: tuple[int, int], proposed: tuple[int, int]) -> bool:
    """Return whether a proposal takes from one kind and gives to the other."""
    return (proposed[0] - current[0]) * (proposed[1] - current[1]) < 0


def _ceil(amount: float, step: int) -> int:
    """Return how many steps cover an amount."""
    return -int(-amount // step)
