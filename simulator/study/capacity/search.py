"""The largest value that passes, or the smallest: bracket it, narrow the bracket, check it, repeat it.

A pure algorithm over `judge(value) -> Verdict`. Words: `good` is the end of a bracket that passes, `bad` the one that
does not; outward is where values pass less easily: up for the largest value, down for the smallest. A thin value, of
too few requests, is neither a pass nor a fail: if all inward values are thin, outward ones are probed.
"""
import math
from collections.abc import Callable
from typing import NamedTuple

from simulator.study.capacity.verdict import Verdict

Judge = Callable[[float], Verdict]
BISECTION, ILLINOIS = "bisection", "illinois"
MIDDLE = (0.1, 0.9)                     # of a bracket: nearer to an end no step goes
CONTROLS = {False: (0.9, 0.7), True: (1.1, 1.4)}        # of the answer; by `is_least`
MOST_ROUNDS = 5                         # of searches below a fail below a pass
MOST_STEPS_DOWN = 5


class Span(NamedTuple):
    """The range of a search, and its tolerance.

    low, high : bounds, both included, above 0. rel_tol : of the ends of the last bracket; whole numbers: 1.
    is_whole : whole numbers only. is_least : the smallest value that passes is wanted.
    """

    low: float
    high: float
    rel_tol: float = 0.01
    is_whole: bool = False
    is_least: bool = False

    @property
    def outer(self) -> float:
        """The bound at which values pass least easily."""
        return self.low if self.is_least else self.high

    @property
    def inner(self) -> float:
        """The bound at which values pass most easily."""
        return self.high if self.is_least else self.low

    def within(self, value: float) -> float:
        """Return the nearest value that may be probed."""
        value = min(max(value, self.low), self.high)
        return round(value) if self.is_whole else value

    def outward(self, value: float) -> float:
        """Return the next value of a bracket that passes."""
        return self.within(value / 2 if self.is_least else value * 2)

    def inward(self, value: float) -> float:
        """Return the next value of a bracket that fails."""
        return self.within(value * 2 if self.is_least else value / 2)

    def is_close(self, good: float, bad: float) -> bool:
        """Return whether a bracket is narrow enough."""
        low, high = sorted((good, bad))
        return high - low <= 1 if self.is_whole else high / low - 1 <= self.rel_tol

    def is_beyond(self, value: float, other: float) -> bool:
        """Return whether a value lies outward of another."""
        return value < other if self.is_least else value > other


class Found(NamedTuple):
    """The result of a search.

    good, bad : verdicts at the ends of the last bracket; None: nothing passes, everything passes.
    at_bound : "from" or "to", where all values up to it pass or fail; None: neither.
    is_monotone : no value fails that lies inward of one that passes.
    is_noisy : both ends are undecided: the noise is wider than the tolerance.
    before : the search that a fail below overthrew; None: none was. before_fail : value of that fail.
    """

    good: Verdict | None
    bad: Verdict | None
    at_bound: str | None
    is_monotone: bool = True
    is_noisy: bool = False
    before: "Found | None" = None
    before_fail: float = math.nan

    @property
    def answer(self) -> float | None:
        """The value that passes."""
        return self.good.value if self.good else None


class Search:
    """A search; caches all verdicts, so that no value is judged twice.

    verdicts : by value, in the order of probing.
    """

    def __init__(self, judge: Judge, span: Span, method: str = ILLINOIS):
        self.verdicts: dict[float, Verdict] = {}
        self._judge, self._span, self._method = judge, span, method

    def run(self, start: float) -> Found:
        """Return the result of the search."""
        found = self._ended(*self._bracket(self._at(start)))
        for _ in range(MOST_ROUNDS):
            if found.good is None or (fail := self._lowest_fail(found.good.value)) is None:
                break
            lower = self._ended(*self._below(fail))
            found = lower._replace(is_monotone=False, before=found, before_fail=fail.value)
        return found

    def _at(self, value: float) -> Verdict:
        value = self._span.within(value)
        if value not in self.verdicts:
            self.verdicts[value] = self._judge(value)
        return self.verdicts[value]

    def _bracket(self, first: Verdict) -> tuple[Verdict | None, Verdict | None]:
        """Return a value that passes and one that does not; None: there is none up to the bound."""
        if not first.passes:
            good, bad = self._below(first)
            beyond = self._beyond_thin(first) if good is None else None
            return (good, bad) if beyond is None else self._above(beyond)
        return self._above(first)

    def _beyond_thin(self, first: Verdict) -> Verdict | None:
        """Return the next value outward of thin ones if it passes; None: none does, or the first is not thin."""
        while first.is_thin and first.value != self._span.outer:
            first = self._at(self._span.outward(first.value))
        return first if first.passes else None

    def _above(self, good: Verdict) -> tuple[Verdict, Verdict | None]:
        """Return a bracket outward of a value that passes."""
        while good.value != self._span.outer:
            following = self._at(self._span.outward(good.value))
            if not following.passes:
                return good, following
            good = following
        return good, None

    def _below(self, bad: Verdict) -> tuple[Verdict | None, Verdict]:
        """Return a bracket inward of a value that fails."""
        while bad.value != self._span.inner:
            following = self._at(self._span.inward(bad.value))
            if following.passes:
                return following, bad
            bad = following
        return None, bad

    def _ended(self, good: Verdict | None, bad: Verdict | None) -> Found:
        """Narrow a bracket."""
        span = self._span
        if good is None or bad is None:
            value = span.inner if good is None else span.outer
            return Found(good, bad, "from" if value == span.low else "to")
        steps = _Steps(self._method)
        while not span.is_close(good.value, bad.value):
            if good.is_undecided and bad.is_undecided:
                return Found(good, bad, None, is_noisy=True)
            middle = self._at(self._between(good, bad, steps.share(good, bad)))
            good, bad = (middle, bad) if middle.passes else (good, middle)
            steps.moved(middle)
        return Found(good, bad, None)

    def _between(self, good: Verdict, bad: Verdict, share: float) -> float:
        value = good.value + (bad.value - good.value) * share
        if not self._span.is_whole:
            return value
        low, high = sorted((good.value, bad.value))
        return min(max(math.floor(value), low + 1), high - 1)

    def _lowest_fail(self, answer: float) -> Verdict | None:
        """Probe inward of the answer; return the innermost of all fails there."""
        for share in CONTROLS[self._span.is_least]:
            self._at(math.ceil(share * answer) if self._span.is_whole and self._span.is_least else share * answer)
        fails = [each for each in self.verdicts.values()
                 if not (each.passes or each.is_thin) and self._span.is_beyond(answer, each.value)]
        return min(fails, key=lambda each: -each.value if self._span.is_least else each.value, default=None)


class _Steps:
    """The place of the next probe in a bracket, as a share from the good end to the bad one.

    Regula falsi with the weights of Illinois on the least margins: of an end that stays twice half the margin counts.
    A step is kept in the middle 80 %; after two steps that left more than half of the bracket, and where a margin is
    no usable number, it is the middle. Source: Dowell and Jarratt, A modified regula falsi method for computing the
    root of an
    equation, BIT 11, 1971.
    """

    def __init__(self, method: str):
        self._is_bisection = method == BISECTION
        self._weights, self._last, self._left, self._share = {True: 1.0, False: 1.0}, None, [], 0.5

    def share(self, good: Verdict, bad: Verdict) -> float:
        """Return the share of the next probe."""
        room, lack = good.margin * self._weights[True], -bad.margin * self._weights[False]
        is_known = room >= 0 and lack > 0 and not (good.is_undecided or bad.is_undecided)     # NaN is not
        is_slow = len(self._left) >= 2 and self._left[-1] * self._left[-2] > 0.5
        if self._is_bisection or not is_known or is_slow:
            self._left.clear()
            self._share = 0.5
        else:
            self._share = min(max(room / (room + lack), MIDDLE[0]), MIDDLE[1])
        return self._share

    def moved(self, probed: Verdict) -> None:
        """Record the end of the bracket that the probe has become."""
        side = probed.passes
        self._left.append(1 - self._share if side else self._share)
        self._weights[side] = 1.0
        if side == self._last:
            self._weights[not side] /= 2
        self._last = side


def repeated(answer: float, judge: Judge, span: Span) -> tuple[float, bool, list[Verdict]]:
    """Judge an answer by runs that did not choose it; step inward while it fails.

    Returns
    -------
    tuple
        The last value judged, whether it passes, and all verdicts.
    """
    seen: list[Verdict] = []
    for _ in range(1 + MOST_STEPS_DOWN):
        seen.append(judge(answer))
        if seen[-1].passes or answer == span.inner or len(seen) > MOST_STEPS_DOWN:
            break
        step = 1 if span.is_whole else answer * span.rel_tol
        answer = span.within(answer + step if span.is_least else answer - step)
    return answer, seen[-1].passes, seen
