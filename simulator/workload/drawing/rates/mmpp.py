"""`mmpp`: a rate that jumps between states at random times, a Markov-modulated Poisson process.

With two states of rates l1, l2, left at r1, r2 per second, the mean is (l1 r2 + l2 r1) / (r1 + r2), and the index of
dispersion of counts over long times 1 + 2 r1 r2 (l1 - l2)^2 / ((r1 + r2)^2 (l1 r2 + l2 r1)).
Source: W. Fischer, K. Meier-Hellstern, The Markov-modulated Poisson process (MMPP) cookbook, 1993.
"""
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator.errors import InputErrors, KeyFault
from simulator.workload.drawing.rates.base import Changing, Course
from simulator.workload.drawing.rates.segments import Segments

FIRST_STAYS = 256               # drawn at once; each later block is as long as all blocks before
MOST_STAYS = 2**23              # takes some ten seconds
PerSecond = Annotated[float, Meta(ge=0, le=1e9)]
Positive = Annotated[float, Meta(gt=0, le=1e9)]


class MmppParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rates of the states, and the rates of state changes."""

    rates_per_s: Annotated[tuple[PerSecond, ...], Meta(min_length=2, max_length=100, description=(
        "requests a second in each state"))]
    leave_per_s: Annotated[tuple[Positive, ...], Meta(description=(
        "of two states: changes per second from each to the other"))] = ()
    matrix_per_s: Annotated[tuple[tuple[PerSecond, ...], ...], Meta(description=(
        "of any number of states: changes per second from state i to state j; the diagonal is 0"))] = ()
    start: Annotated[Literal["stationary"] | Annotated[int, Meta(ge=0, le=99)], Meta(description=(
        "the first state, counted from 0; stationary: drawn by the states' shares in the long run"))] = "stationary"

    def __post_init__(self):
        count = len(self.rates_per_s)
        if bool(self.leave_per_s) == bool(self.matrix_per_s):
            raise ValueError("give either leave_per_s or matrix_per_s")
        if self.leave_per_s and not count == len(self.leave_per_s) == 2:
            raise ValueError(f"leave_per_s takes two states, found {count} rates_per_s and {len(self.leave_per_s)} "
                             "leave_per_s; give matrix_per_s for more")
        if self.matrix_per_s and {len(self.matrix_per_s), *map(len, self.matrix_per_s)} != {count}:
            raise ValueError(f"matrix_per_s: as many as rates_per_s, {count} rows of {count}, are needed")
        if any(row[i] for i, row in enumerate(self.matrix_per_s)):
            raise ValueError("matrix_per_s: the diagonal has to be 0; a state is not left for itself")
        if not all(_reaches_all(self.jumps(), state) for state in range(count)):
            raise ValueError("matrix_per_s: some state is never reached from another one")
        if not any(self.rates_per_s):
            raise ValueError("rates_per_s: all are 0, so nobody would ever come")
        if self.start != "stationary" and self.start >= count:
            raise ValueError(f"start: there is no state {self.start}, only those below {count}")

    def jumps(self) -> np.ndarray:
        """Return the changes per second from state i to state j, (n, n)."""
        if self.matrix_per_s:
            return np.array(self.matrix_per_s)
        return np.array([[0.0, self.leave_per_s[0]], [self.leave_per_s[1], 0.0]])


class Mmpp(Changing):
    """`mmpp`; its mean is the long-run mean."""

    Parameters = MmppParameters

    def __init__(self, parameters: MmppParameters):
        self._parameters = parameters
        self._jumps = parameters.jumps()
        self.shares = _stationary(self._jumps)
        self.mean_per_s = float(self.shares @ np.array(parameters.rates_per_s))

    def course(self, generator):
        """Return a walk through the states."""
        start = self._parameters.start
        if start == "stationary":
            start = int(np.searchsorted(np.cumsum(self.shares)[:-1], generator.random(), side="right"))
        return Walk(np.array(self._parameters.rates_per_s), self._jumps, start, generator)


class Walk(Course):
    """A walk through the states, drawn as far as needed.

    The blocks in which it is drawn do not depend on the calls, so a longer walk begins with the shorter one.
    """

    is_random = True

    def __init__(self, rates_per_s: np.ndarray, jumps_per_s: np.ndarray, start: int, generator):
        self._rates, self._state, self._generator = rates_per_s, start, generator
        self._leaves = jumps_per_s.sum(axis=1)
        self._cumulative = np.cumsum(jumps_per_s, axis=1) / self._leaves[:, None]
        self._starts_s, self._states, self._end_s = np.empty(0), np.empty(0, np.int64), 0.0
        self._extend()

    def requests_until(self, time_s):
        """Return the integral, which has no bound."""
        if np.isinf(time_s):
            return np.inf
        while self._end_s < time_s:
            self._extend()
        return self._segments.requests_until(time_s)

    def times_s(self, due):
        """Return the times, exact for the steps of the walk."""
        while len(due) and self._segments.requests_until(self._end_s) < due[-1]:
            self._extend()
        return self._segments.times_s(due)

    def _extend(self) -> None:
        count = max(len(self._states), FIRST_STAYS)
        if count > MOST_STAYS:
            raise InputErrors([KeyFault(
                f"workload.rate: the state changes more than {MOST_STAYS} times; give fewer requests, a shorter "
                "duration_s, or slower changes")])
        stays, picks = self._generator.standard_exponential(count), self._generator.random(count)
        states = np.empty(count, np.int64)
        for step in range(count):
            states[step] = self._state
            self._state = int(np.searchsorted(self._cumulative[self._state, :-1], picks[step], side="right"))
        ends_s = self._end_s + np.cumsum(stays / self._leaves[states])
        self._starts_s = np.concatenate([self._starts_s, [self._end_s], ends_s[:-1]])
        self._states = np.concatenate([self._states, states])
        self._end_s = float(ends_s[-1])
        self._segments = Segments(self._starts_s, self._rates[self._states])


def _reaches_all(jumps: np.ndarray, start: int) -> bool:
    seen, todo = {start}, [start]
    while todo:
        new = set(np.flatnonzero(jumps[todo.pop()]).tolist()) - seen
        seen |= new
        todo += new
    return len(seen) == len(jumps)


def _stationary(jumps: np.ndarray) -> np.ndarray:
    """Return the share of time in each state: the flows into and out of each are equal, and the shares add up to 1."""
    balance = jumps.T - np.diag(jumps.sum(axis=1))
    balance[-1] = 1.0
    return np.linalg.solve(balance, np.eye(len(jumps))[-1])
