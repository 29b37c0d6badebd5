"""Speed at which changes of an autoscaler take effect: windows and rates."""
import math
from collections import deque

from simulator.domain.autoscaling import Rate, Rates
from simulator.scaling.base import Observation


class Pace:
    """The windows and rates of one group of replicas.

    settings : of the table.
    policy : subclass of Autoscaler, with the defaults of the keys.
    """

    def __init__(self, settings, policy):
        given = settings.scale_up_stabilization_window_s, settings.scale_down_stabilization_window_s
        up_ns, down_ns = (round((default if value is None else value) * 1e9)
                          for value, default in zip(given, policy.windows_s, strict=True))
        kind = Extreme if (settings.stabilization or policy.stabilization) == "extreme" else Unbroken
        self._window = kind(up_ns, down_ns)
        rates = settings.rates or policy.rates
        self._limits = None if rates is None else Limits(rates)
        self._pending = 0                   # changes that were decided and have not taken effect

    def due(self, observation: Observation, changes: dict[int, int]) -> dict[int, int]:
        """Return the part of a policy's changes that is to take effect.

        changes : {pool: change}; the last are cut first.
        """
        now_ns, replicas = observation.now_ns, observation.replicas + self._pending
        if self._limits is not None or isinstance(self._window, Extreme):
            changes = {each.index: min(max(changes[each.index], -each.removable), each.room)
                       for each in observation.variants if changes.get(each.index)}
        changes = self._window.due(now_ns, replicas, changes, self._pending)
        if self._limits is not None:
            lowest, highest = self._limits.bounds(now_ns, replicas)
            changes = cut(cut(changes, 1, highest - replicas), -1, replicas - lowest)
            self._limits.note(now_ns, sum(changes.values()))
        self._pending += sum(changes.values())
        return changes

    def amend(self, now_ns: int, before: dict[int, int], after: dict[int, int]) -> None:
        """Note that other changes take effect than `due` returned at this time."""
        change = sum(after.values()) - sum(before.values())
        self._pending += change
        if self._limits is not None:
            self._limits.note(now_ns, change)

    def acted(self, changes: dict[int, int]) -> None:
        """Note that changes have taken effect."""
        self._pending -= sum(changes.values())


class Unbroken:
    """A change takes effect after the policy asked for it throughout a window.

    Growth and shrinking have windows of their own.
    """

    def __init__(self, up_ns: int, down_ns: int):
        self._windows_ns = {1: up_ns, -1: down_ns}
        self._since_ns = {1: None, -1: None}

    def due(self, now_ns: int, replicas: int, changes: dict[int, int], pending: int) -> dict[int, int]:
        """Return the changes of a sign that has been asked for long enough."""
        found = {}
        for sign, window_ns in self._windows_ns.items():
            asked = {pool: change for pool, change in changes.items() if change * sign > 0}
            if not asked:
                self._since_ns[sign] = None
                continue
            if self._since_ns[sign] is None:
                self._since_ns[sign] = now_ns
            if now_ns - self._since_ns[sign] >= window_ns:
                found |= asked
        return found


class Lowest:
    """The lowest value of a window; the cost of a look does not depend on the window."""

    def __init__(self, window_ns: int):
        self._window_ns = window_ns
        self._candidates: deque[tuple[int, int]] = deque()      # time, value: both ascend

    def with_value(self, now_ns: int, value: int) -> int:
        """Return the lowest of the window and a value, which joins the window."""
        while self._candidates and self._candidates[0][0] <= now_ns - self._window_ns:
            self._candidates.popleft()
        while self._candidates and self._candidates[-1][1] >= value:
            self._candidates.pop()
        self._candidates.append((now_ns, value))
        return self._candidates[0][1]


class Extreme:
    """Growth up to the lowest recommendation of a window, shrinking to the highest.

    A recommendation as old as the window does not count; the number of replicas at the first decision counts as one.
    Source: Kubernetes, pkg/controller/podautoscaler/horizontal.go, stabilizeRecommendationWithBehaviors.
    """

    def __init__(self, up_ns: int, down_ns: int):
        self._least, self._most, self._is_first = Lowest(up_ns), Lowest(down_ns), True

    def due(self, now_ns: int, replicas: int, changes: dict[int, int], pending: int) -> dict[int, int]:
        """Return changes that lead into the bounds.

        replicas : with the pending changes.
        """
        recommended = replicas - pending + sum(changes.values())
        if self._is_first:
            self._least.with_value(now_ns, replicas)
            self._most.with_value(now_ns, -replicas)
            self._is_first = False
        least, most = self._least.with_value(now_ns, recommended), -self._most.with_value(now_ns, -recommended)
        change = min(max(replicas, least), most) - replicas
        total = sum(changes.values())
        if total > 0:
            return cut(changes, 1, max(change, 0) - total + _sum(changes, 1))
        return cut(changes, -1, max(-change, 0) + total + _sum(changes, -1)) if total < 0 else dict(changes)


class Limits:
    """Bounds on the number of replicas, by the changes of the last periods.

    Source: Kubernetes, pkg/controller/podautoscaler/horizontal.go, calculateScaleUpLimitWithScalingRules and
    calculateScaleDownLimitWithBehaviors.
    """

    def __init__(self, rates: Rates):
        self._rates = rates
        self._longest_ns = round(max(rate.period_s for rate in rates.up + rates.down) * 1e9)
        self._events: list[tuple[int, int]] = []    # time, change

    def bounds(self, now_ns: int, replicas: int) -> tuple[int, int]:
        """Return the lowest and the highest number of replicas that may be set."""
        self._events = [event for event in self._events if event[0] > now_ns - self._longest_ns]
        select_down = self._rates.select_down or self._rates.select
        ups = [self._proposed(rate, 1, now_ns, replicas) for rate in self._rates.up]
        downs = [self._proposed(rate, -1, now_ns, replicas) for rate in self._rates.down]
        highest = {"max": max(ups), "min": min(ups), "disabled": replicas}[self._rates.select]
        lowest = {"max": min(downs), "min": max(downs), "disabled": replicas}[select_down]
        return min(lowest, replicas), max(highest, replicas)

    def note(self, now_ns: int, change: int) -> None:
        """Note a change that was decided."""
        if change:
            self._events.append((now_ns, change))

    def _proposed(self, rate: Rate, sign: int, now_ns: int, replicas: int) -> int:
        begin_ns = now_ns - round(rate.period_s * 1e9)
        at_begin = replicas - sum(change for time_ns, change in self._events if time_ns > begin_ns)
        if rate.replicas is not None:
            return at_begin + sign * rate.replicas
        return math.ceil(at_begin * (100 + rate.percent) / 100) if sign > 0 else (
            math.floor(at_begin * max(100 - rate.percent, 0) / 100))


def cut(changes: dict[int, int], sign: int, most: int) -> dict[int, int]:
    """Return changes of which one sign adds up to `most` at most.

    The last changes are cut first.
    """
    found = {}
    for pool, change in changes.items():
        if change * sign > 0:
            change = sign * min(abs(change), max(most, 0))
            most -= abs(change)
        if change:
            found[pool] = change
    return found


def keeping_one(observation: Observation, changes: dict[int, int]) -> dict[int, int]:
    """Return changes that leave a replica of each role, the last cut first."""
    found = {}
    for role in dict.fromkeys(variant.role for variant in observation.variants):
        replicas = {each.index: each.serving + each.starting for each in observation.variants if each.role == role}
        own = {pool: change for pool, change in changes.items() if pool in replicas}
        found |= cut(own, -1, sum(replicas.values()) - 1)
    return found


def _sum(changes: dict[int, int], sign: int) -> int:
    """Return the magnitude of all changes of one sign."""
    return sum(abs(change) for change in changes.values() if change * sign > 0)
