"""Two clocks, one of the wall and one of the simulation, and how late answers were written."""
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction

LAG_BOUNDS_NS = tuple(round(ms * 1e6) for ms in (0.1, 0.25, 0.5, 1, 2, 5, 10, 25, 50, 100, 250, 1000))
BEHIND_NS = 5_000_000           # a writer that is later is behind
KEPT_UP_P99_NS, KEPT_UP_MOST_NS = 1_000_000, 50_000_000
FAST = "fast"


class Clock:
    """Simulated time as a function of wall time.

    v(w) = v0 + floor((w - w0) speed) and w(v) = w0 + ceil((v - v0) / speed), with an exact fraction for the speed. A
    change sets (w0, v0) to that moment, so that simulated time never jumps; `go_back` alone sets it back. At
    speed "fast" only `jump` moves the time.

    speed : simulated seconds a second, a number > 0, or "fast". wall_ns : returns the time of the wall, monotonic.
    """

    def __init__(self, speed: float | str, wall_ns: Callable[[], int]):
        self.wall_ns = wall_ns
        self.is_paused = False
        self._origin_ns, self._simulated_ns = wall_ns(), 0
        self.changes = [(self._origin_ns, 0, speed)]
        self._set(speed)

    @property
    def is_fast(self) -> bool:
        """Whether time jumps to the next event."""
        return self.speed == FAST

    def now_ns(self) -> int:
        """Return the simulated time."""
        return self.at(self.wall_ns())

    def at(self, wall_ns: int) -> int:
        """Return the simulated time at a time of the wall."""
        if self.is_fast or self.is_paused:
            return self._simulated_ns
        return self._simulated_ns + (wall_ns - self._origin_ns) * self._num // self._den

    def wall_at(self, simulated_ns: int) -> int | None:
        """Return the first time of the wall at which it is so late in the simulation.

        None: time is paused.
        """
        if self.is_paused:
            return None
        if self.is_fast:
            return self.wall_ns()
        return self._origin_ns - (self._simulated_ns - simulated_ns) * self._den // self._num

    def jump(self, simulated_ns: int) -> None:
        """Move the time on; at speed "fast" only."""
        self._simulated_ns = max(self._simulated_ns, simulated_ns)

    def go_back(self, simulated_ns: int) -> None:
        """Go on from an earlier simulated time; not while time is paused, or jumps."""
        self._origin_ns, self._simulated_ns = self.wall_ns(), simulated_ns

    def pause(self) -> None:
        """Halt the time."""
        self._fix()
        self.is_paused = True
        self.changes.append((self._origin_ns, self._simulated_ns, 0))

    def resume(self) -> None:
        """Let the time go on."""
        if self.is_paused:
            self._origin_ns, self.is_paused = self.wall_ns(), False
            self.changes.append((self._origin_ns, self._simulated_ns, self.speed))

    def change(self, speed: float | str) -> None:
        """Set the speed from now on."""
        self._fix()
        self._set(speed)
        self.changes.append((self._origin_ns, self._simulated_ns, 0 if self.is_paused else speed))

    def _set(self, speed: float | str) -> None:
        self.speed = speed
        if speed != FAST:
            self._num, self._den = Fraction(str(speed)).as_integer_ratio()

    def _fix(self) -> None:
        now_ns = self.wall_ns()
        self._origin_ns, self._simulated_ns = now_ns, self.at(now_ns)


class Lag:
    """How late news were written after they were due, in wall time."""

    def __init__(self):
        self.counts = [0] * (len(LAG_BOUNDS_NS) + 1)
        self.total, self.sum_ns, self.most_ns, self.last_ns = 0, 0, 0, 0

    def add(self, lag_ns: int) -> None:
        """Count a message."""
        self.counts[bisect_left(LAG_BOUNDS_NS, lag_ns)] += 1
        self.total += 1
        self.sum_ns += lag_ns
        self.most_ns, self.last_ns = max(self.most_ns, lag_ns), lag_ns

    @property
    def is_behind(self) -> bool:
        """Whether the last message was late by more than `BEHIND_NS`."""
        return self.last_ns > BEHIND_NS

    def up_to(self, bound_ns: int) -> int:
        """Return the number of messages with at most one of the bounds."""
        return sum(self.counts[:LAG_BOUNDS_NS.index(bound_ns) + 1])

    @property
    def kept_up(self) -> bool:
        """Whether 99 % of messages were late by at most 1 ms, and none by more than 50 ms."""
        return self.most_ns <= KEPT_UP_MOST_NS and 100 * self.up_to(KEPT_UP_P99_NS) >= 99 * self.total

    def table(self) -> dict:
        """Return the histogram for serve.json: {"at most, ms": messages}, and the largest."""
        sums = [sum(self.counts[:i + 1]) for i in range(len(LAG_BOUNDS_NS))]
        return {"messages": self.total, "most_ms": self.most_ns / 1e6,
                "at_most_ms": {f"{bound / 1e6:g}": count for bound, count in zip(LAG_BOUNDS_NS, sums, strict=True)}}


def speed_of(value: object) -> float | str:
    """Return a speed, a number or "fast".

    Raises ValueError: it is neither, or out of range.
    """
    if value == "fast":
        return value
    speed = float(value)
    if not 0.01 <= speed <= 10000 or isinstance(value, bool):
        raise ValueError(f"expected 0.01 to 10000, or fast, found {value}")
    return int(speed) if speed == int(speed) else speed
