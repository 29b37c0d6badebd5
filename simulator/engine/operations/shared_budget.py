"""One budget of accelerators for the autoscalers of all models: changes that are granted, also two at a time.

Source: ai-dynamo/dynamo, components/src/dynamo/global_planner/orchestrator.py at 0436ef87 (mediate,
_find_pair_partner_set, _partial_partner), with compute_tolerance and bounds_for_total of planner/core/budget.py at
15a72ce9; the rules restated.
"""
from typing import NamedTuple

from simulator.domain.autoscaling import SharedBudget


class Intent(NamedTuple):
    """The number of replicas that an autoscaler last asked for, and when."""

    replicas: int
    time_ns: int


class Candidate(NamedTuple):
    """A change of a pool that was asked for earlier, in the opposite direction."""

    pool: int
    change: int
    gpus: int           # of a replica

    @property
    def delta(self) -> int:
        """Return the accelerators that it adds."""
        return self.change * self.gpus


class Mediator:
    """Grants or denies the changes that autoscalers ask for.

    A change is granted together with earlier, opposite ones that were denied, as many as fit: smallest first, those of
    the same autoscaler before others, and a part of the one that would pass the bound. Without any it is granted if
    the total stays within the bounds. Of changes in both directions the total may be below the lower bound by the
    accelerators of one replica, the largest that takes part.

    settings : SharedBudget.
    gpus : {pool: accelerators of a replica}. groups : {pool: number of its autoscaler}.
    """

    def __init__(self, settings: SharedBudget, gpus: dict[int, int], groups: dict[int, int]):
        self._least = -1 if settings.min_gpus is None else settings.min_gpus
        self._most = -1 if settings.max_gpus is None else settings.max_gpus
        self._ttl_ns = round(settings.intent_ttl_s * 1e9)
        self._gpus, self._groups = gpus, groups
        self._intents: dict[int, Intent] = {}
        self._pending = dict.fromkeys(gpus, 0)      # granted, and not carried out yet
        self.num_denied = self.num_paired = 0

    def grant(self, now_ns: int, changes: dict[int, int], there: dict[int, int]) -> dict[int, int]:
        """Return the changes of all pools that are granted with those of one autoscaler.

        There are none if its changes are denied.

        changes : {pool: change}, each not 0. there : {pool: replicas}, of all pools.
        Groups that give accelerators come first.
        """
        now = {pool: count + self._pending[pool] for pool, count in there.items()}
        self._intents |= {pool: Intent(now[pool] + change, now_ns) for pool, change in changes.items()}
        partners = self._partners(now_ns, changes, now)
        granted = dict(changes)
        if partners:
            granted |= {each.pool: each.change for each in partners}
            self.num_paired += 1
        elif not self._holds(self._total(now, changes), self._tolerance(changes) if _is_mixed(changes) else 0):
            self.num_denied += 1
            return {}
        for pool, change in granted.items():
            self._pending[pool] += change
        nets = dict.fromkeys((self._groups[pool] for pool in granted), 0)
        for pool, change in granted.items():
            nets[self._groups[pool]] += change * self._gpus[pool]
        return dict(sorted(granted.items(), key=lambda each: nets[self._groups[each[0]]]))

    def acted(self, changes: dict[int, int]) -> None:
        """Note that changes were carried out."""
        for pool, change in changes.items():
            self._pending[pool] -= change

    def notes(self) -> list[str]:
        """Return how often changes were denied, and the simplifications."""
        return [f"autoscaling.shared_budget: {self.num_denied} changes denied, {self.num_paired} granted together with "
                "earlier ones; autoscalers ask in order of the pools, at one instant; a replica that drains is not "
                "counted, one that has failed is"]

    def _partners(self, now_ns, changes, now) -> list[Candidate]:
        """Return the earlier changes that are granted with these."""
        net = sum(change * self._gpus[pool] for pool, change in changes.items())
        found = self._candidates(now_ns, net, changes, now) if net else []
        tolerance = self._tolerance([*changes, *(each.pool for each in found)])
        total, taken = self._total(now, changes), []
        for each in found:
            if self._holds(total + each.delta, tolerance) or self._is_short(net, total + each.delta, tolerance):
                taken.append(each)
                total += each.delta
                continue
            if (part := self._part(each, total, tolerance)) is not None:
                taken.append(part)
                total += part.delta
            break
        if taken and not self._holds(total, tolerance):
            total -= taken[-1].delta
            taken[-1] = self._part(taken[-1], total, tolerance) or taken[-1]
            total += taken[-1].delta
        return taken if self._holds(total, tolerance) else []

    def _candidates(self, now_ns, net, changes, now) -> list[Candidate]:
        group = next(self._groups[pool] for pool in changes)
        found = [Candidate(pool, intent.replicas - now[pool], self._gpus[pool])
                 for pool, intent in sorted(self._intents.items())
                 if pool not in changes and now_ns - intent.time_ns <= self._ttl_ns]
        found = [each for each in found if each.delta * net < 0]
        return sorted(found, key=lambda each: (abs(each.delta), self._groups[each.pool] != group))

    def _part(self, each: Candidate, total: int, tolerance: int) -> Candidate | None:
        """Return the part of a change that leads to a bound, and not beyond; None: there is none."""
        change = each.change
        if change > 0 and self._most >= 0:
            change = min(change, (self._most - total) // each.gpus)
        elif change < 0 and self._least >= 0:
            change = max(change, -((total - self._least + tolerance) // each.gpus))
        return each._replace(change=change) if change * each.change > 0 else None

    def _is_short(self, net: int, total: int, tolerance: int) -> bool:
        """Return whether a total is still beyond the bound that a change of this sign leads across."""
        return 0 <= self._most < total if net > 0 else self._least >= 0 and total < self._least - tolerance

    def _holds(self, total: int, tolerance: int) -> bool:
        return not 0 <= self._most < total and (self._least < 0 or total >= self._least - tolerance)

    def _total(self, now, changes) -> int:
        return sum((count + changes.get(pool, 0)) * self._gpus[pool] for pool, count in now.items())

    def _tolerance(self, pools) -> int:
        return max((self._gpus[pool] for pool in pools), default=0)


def _is_mixed(changes: dict[int, int]) -> bool:
    """Return whether changes lead in both directions."""
    return min(changes.values()) < 0 < max(changes.values())
