"""Two clocks: speeds, pauses, and how late answers are."""
import pytest

from simulator.live.clock import FAST, Clock, Lag

MS = 1_000_000


class Wall:
    """A wall clock that is set by hand."""

    def __init__(self, now_ns=0):
        self.now_ns = now_ns

    def __call__(self):
        return self.now_ns


def test_the_worked_example():      # specs/serve.md, 4.5
    wall = Wall(1_000 * MS)
    clock = Clock(2, wall)
    wall.now_ns = 1_030 * MS
    assert clock.now_ns() == 60 * MS
    assert clock.wall_at(99 * MS) == 1_049_500_000
    assert clock.wall_at(107 * MS) == 1_053_500_000
    assert clock.wall_at(115 * MS) == 1_057_500_000
    wall.now_ns = 1_055 * MS
    clock.pause()
    assert clock.now_ns() == 110 * MS
    wall.now_ns = 2_055 * MS
    assert clock.now_ns() == 110 * MS
    assert clock.wall_at(115 * MS) is None
    clock.change(1)
    clock.resume()
    assert clock.wall_at(115 * MS) == 2_060 * MS
    assert clock.changes == [(1_000 * MS, 0, 2), (1_055 * MS, 110 * MS, 0), (2_055 * MS, 110 * MS, 0),
                             (2_055 * MS, 110 * MS, 1)]


@pytest.mark.parametrize("speed", [0.01, 0.3, 1, 3, 7.7, 10000])
def test_a_time_of_the_wall_is_the_first_at_which_it_is_so_late(speed):
    wall = Wall(123_456_789)
    clock = Clock(speed, wall)
    for simulated_ns in (0, 1, 2, 999, 1_000_003, 10**12 + 7):
        due_ns = clock.wall_at(simulated_ns)
        assert clock.at(due_ns) >= simulated_ns
        assert due_ns == 123_456_789 or clock.at(due_ns - 1) < simulated_ns


def test_time_never_jumps_at_a_change():
    wall = Wall()
    clock = Clock(3, wall)
    seen = []
    for speed in (0.7, 12, FAST, 0.3):
        wall.now_ns += 1_000_001
        before_ns = clock.now_ns()
        clock.change(speed)
        assert clock.now_ns() == before_ns
        seen.append(before_ns)
    assert seen == sorted(seen)


def test_fast_time_stands_until_it_jumps():
    wall = Wall(5)
    clock = Clock(FAST, wall)
    wall.now_ns = 10**9
    assert clock.now_ns() == 0
    assert clock.wall_at(10**15) == 10**9
    clock.jump(70)
    clock.jump(60)
    assert clock.now_ns() == 70


@pytest.mark.parametrize(("lags_ms", "kept_up"), [
    ([], True), ([0.4] * 100, True), ([1.0] * 99 + [50.0], True), ([0.1] * 98 + [1.1] * 2, False),
    ([0.1] * 999 + [50.1], False)])
def test_verdict(lags_ms, kept_up):
    lag = Lag()
    for each in lags_ms:
        lag.add(round(each * 1e6))
    assert lag.kept_up is kept_up
    assert lag.table()["messages"] == len(lags_ms)
    assert lag.table()["at_most_ms"]["1"] == sum(each <= 1 for each in lags_ms)


def test_a_stall_is_behind_until_the_next_message_in_time():
    lag = Lag()
    lag.add(100 * MS)
    assert lag.is_behind
    assert lag.table()["most_ms"] == 100.0
    lag.add(0)
    assert not lag.is_behind
