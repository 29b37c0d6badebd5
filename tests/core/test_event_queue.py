import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from simulator.core.clock import NEVER_NS
from simulator.core.event_queue import EventQueue


def pop_all(queue):
    return [queue.pop_event()["payload"] for _ in range(len(queue))]


def test_events_leave_in_order_of_time():
    queue = EventQueue()
    for time_ns in (30, 10, 20):
        queue.push_event(time_ns, priority=0, payload=time_ns)

    assert pop_all(queue) == [10, 20, 30]


def test_at_equal_times_the_lower_priority_goes_first():
    queue = EventQueue()
    queue.push_event(5, priority=2, payload=0)
    queue.push_event(5, priority=1, payload=1)
    queue.push_event(4, priority=9, payload=2)

    assert pop_all(queue) == [2, 1, 0]


def test_at_equal_times_and_priorities_the_first_in_is_the_first_out():
    queue = EventQueue()
    for payload in range(1000):
        queue.push_event(7, priority=3, payload=payload)

    assert pop_all(queue) == list(range(1000))


def test_an_event_keeps_its_fields():
    queue = EventQueue()
    queue.push_event(0, priority=0)
    queue.push_event(2**62, priority=3, kind=-4, replica=511, payload=-(2**40))
    queue.pop_event()

    # Second event pushed, so sequence 1; order = 3 << 48 | 1
    assert queue.pop_event() == {
        "time_ns": 2**62, "order": 3 * 2**48 + 1, "kind": -4, "replica": 511, "payload": -(2**40)}


def test_an_empty_queue_has_no_next_event():
    queue = EventQueue()

    assert queue.next_time_ns == NEVER_NS
    assert queue.peek_event() is None
    with pytest.raises(IndexError):
        queue.pop_event()


class EventQueueMachine(RuleBasedStateMachine):
    """Against a list that is sorted at each look."""

    def __init__(self):
        super().__init__()
        self.queue = EventQueue()
        self.model = []
        self.pushed = 0

    @rule(time_ns=st.integers(0, 6) | st.integers(0, NEVER_NS), priority=st.integers(0, 2), times=st.integers(1, 9))
    def push(self, time_ns, priority, times):
        for _ in range(times):
            self.queue.push_event(time_ns, priority, payload=self.pushed)
            self.model.append((time_ns, priority, self.pushed))
            self.pushed += 1

    @precondition(lambda self: self.model)
    @rule()
    def pop(self):
        self.model.sort()
        time_ns, priority, payload = self.model.pop(0)
        event = self.queue.pop_event()
        assert (event["time_ns"], event["order"] >> 48, event["payload"]) == (time_ns, priority, payload)

    @invariant()
    def agree(self):
        self.queue.check()
        assert len(self.queue) == len(self.model)
        assert self.queue.next_time_ns == min(self.model, default=(NEVER_NS,))[0]
        assert (self.queue.peek_event() or {}).get("payload") == min(self.model, default=(0, 0, None))[2]


TestEventQueueMachine = EventQueueMachine.TestCase
TestEventQueueMachine.settings = settings(max_examples=50, stateful_step_count=50, deadline=None, derandomize=True)
