"""The queue of rows by cause, against a sorted list."""
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from simulator.core.clock import NEVER_NS
from simulator.scheduling.cause_queue import CauseQueue

NUM_CAUSES = 4


class Waiter(NamedTuple):
    """A row with its place in the order."""

    key: int
    tie: int
    rank: int
    row: int


def test_rows_of_an_open_cause_overtake_those_of_a_closed_one():
    queue = CauseQueue(3)
    for row, cause in enumerate([1, 0, 2, 1]):
        queue.push_row(row, cause, row, 0, 0)

    assert (queue.first_row(True), queue.first_row(False)) == (0, 1)
    queue.open_or_close(2, True)
    queue.remove_row(1)
    assert queue.first_row(False) == 2


def test_a_parked_row_returns_to_its_place():
    queue = CauseQueue(1)
    for row in range(4):
        queue.push_row(row, 0, row, 0, 0)
    queue.park_row(1, 50)
    queue.remove_row(0)
    assert queue.first_row(True) == 2

    queue.wake_rows(49)
    assert queue.first_row(True) == 2
    queue.wake_rows(50)
    assert queue.first_row(True) == 1


def test_a_row_that_came_back_is_not_woken_for_its_first_stay():
    queue = CauseQueue(1)
    queue.push_row(7, 0, 0, 0, 0)
    queue.park_row(7, 50)
    queue.remove_row(7)
    queue.push_row(7, 0, 1, 0, 0)
    queue.pass_over(7)
    queue.wake_rows(50)
    assert queue.first_row(True) == -1
    queue.return_row(7)
    assert queue.first_row(True) == 7


def test_removing_a_row_that_is_not_there_is_an_error():
    with pytest.raises(KeyError):
        CauseQueue(1).remove_row(0)


class CauseQueueMachine(RuleBasedStateMachine):
    """Rows come, leave, change their cause, are parked and return."""

    def __init__(self):
        super().__init__()
        self.queue = CauseQueue(NUM_CAUSES)
        self.open = {0}
        self.queued, self.aside, self.parked = {}, {}, {}       # Waiter: cause, or (cause, instant)
        self.next_row = 0

    @rule(entries=st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 3), st.integers(0, NUM_CAUSES - 1)),
                           min_size=1, max_size=12), down=st.booleans())
    def push(self, entries, down):
        for key, tie, cause in entries:
            row = 64 * self.next_row
            waiter = Waiter(key, tie, -row if down else row, row)
            self.queue.push_row(row, cause, key, tie, waiter.rank)
            self.queued[waiter] = cause
            self.next_row += 1

    @rule(cause=st.integers(0, NUM_CAUSES - 1), is_open=st.booleans())
    def open_or_close(self, cause, is_open):
        self.queue.open_or_close(cause, is_open)
        (self.open.add if is_open else self.open.discard)(cause)

    @rule(data=st.data())
    def remove(self, data):
        waiters = sorted([*self.queued, *self.aside, *self.parked])
        if waiters:
            waiter = data.draw(st.sampled_from(waiters))
            self.queue.remove_row(waiter.row)
            for rows in (self.queued, self.aside, self.parked):
                rows.pop(waiter, None)

    @precondition(lambda self: self.queued)
    @rule(data=st.data(), cause=st.integers(0, NUM_CAUSES - 1))
    def move(self, data, cause):
        waiter = data.draw(st.sampled_from(sorted(self.queued)))
        self.queue.move_row(waiter.row, cause)
        self.queued[waiter] = cause

    @precondition(lambda self: self.queued)
    @rule(data=st.data())
    def pass_over(self, data):
        waiter = data.draw(st.sampled_from(sorted(self.queued)))
        self.queue.pass_over(waiter.row)
        self.aside[waiter] = self.queued.pop(waiter)

    @rule()
    def return_rows(self):
        for waiter, cause in self.aside.items():
            self.queue.return_row(waiter.row)
            self.queued[waiter] = cause
        self.aside.clear()

    @precondition(lambda self: self.queued)
    @rule(data=st.data(), instant_ns=st.sampled_from([10, 20, 30, NEVER_NS]))
    def park(self, data, instant_ns):
        waiter = data.draw(st.sampled_from(sorted(self.queued)))
        self.queue.park_row(waiter.row, instant_ns)
        self.parked[waiter] = self.queued.pop(waiter), instant_ns

    @rule(now_ns=st.sampled_from([5, 10, 25, None]))
    def wake(self, now_ns):
        self.queue.wake_rows(now_ns)
        for waiter, (cause, instant_ns) in [*self.parked.items()]:
            if now_ns is None or instant_ns <= now_ns:
                self.queued[waiter] = cause
                del self.parked[waiter]

    @invariant()
    def agree(self):
        self.queue.check()
        assert self.queue.rows() == [waiter.row for waiter in sorted([*self.queued, *self.aside, *self.parked])]
        assert self.queue.first_row(True) == min(self.queued, default=Waiter(0, 0, 0, -1)).row
        admissible = [waiter for waiter, cause in self.queued.items() if cause in self.open]
        assert self.queue.first_row(False) == min(admissible, default=Waiter(0, 0, 0, -1)).row


TestCauseQueueMachine = CauseQueueMachine.TestCase
TestCauseQueueMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None, derandomize=True)
